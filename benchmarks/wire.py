"""CPU time of control messages, on the worker's side and on the gateway's.

    PYTHONPATH=src python benchmarks/wire.py        measure, write results/wire.json

Tokens: a step's events are packed, encoded, framed, read, decoded and unpacked, without a socket.
Link: a gateway process and a worker process on one core each; CPU time of each from /proc, for a
token that crosses, and for a request that is handed over and answered.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

import uvloop
from support import result

from antiphon.core.joining import judge_join
from antiphon.live.join_socket import JoinSocket
from antiphon.live.remote_worker import RemoteWorker
from antiphon.live.worker_port import WorkerPort
from antiphon.types import (
    Aborted,
    Admitted,
    Event,
    Incarnation,
    KvShape,
    LeaseId,
    Logprobs,
    ModelInfo,
    Offer,
    OfferedPage,
    OfferedSequence,
    Request,
    RequestId,
    SamplingParams,
    Stage,
    TokenGenerated,
    Welcome,
    WorkerId,
    WorkerInfo,
    WorkerView,
)
from antiphon.wire import TO_GATEWAY, FrameReader, Kind, decode, encode, pack_events, unpack_events

IDENTITY = bytes(32)
BATCHES = (1, 8, 64)
TOKENS = 200_000
REQUESTS = 4000
SAMPLING = SamplingParams(max_tokens=10**9, seed=1)
KV = KvShape(layout="bench", page_tokens=16, block_tokens=64, page_bytes=2**20, pages=1000)


def token(index: int, logprobs: Logprobs | None = None) -> TokenGenerated:
    return TokenGenerated(
        request=RequestId(f"chatcmpl-{index % 64:032x}"),
        attempt=1,
        sequence=0,
        index=index,
        token=index * 7919 % 49152,
        logprobs=logprobs,
    )


def offer(pages: int) -> Offer:
    return Offer(
        request=RequestId(f"chatcmpl-{0:032x}"),
        attempt=1,
        lease=LeaseId("0" * 32),
        ttl_s=10.0,
        owner=WorkerId("prefill-0"),
        incarnation=Incarnation("0" * 32),
        kv=KV,
        numerics="cpu avx512 int8 bf16",
        pages=tuple(
            OfferedPage(page, 2, page * 0x9E3779B97F4A7C15 % 2**64) for page in range(pages)
        ),
        sequences=(OfferedSequence(0, pages * 16, tuple(range(pages))),),
    )


def microseconds(run: Callable[[], object], repeats: int) -> float:
    """CPU time of one run, the least of five rounds."""
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(repeats):
            run()
        best = min(best, (time.process_time() - began) / repeats)
    return best * 1e6


def code_costs() -> dict[str, object]:
    def write(events: Sequence[Event]) -> bytes:
        return encode(Kind.EVENTS, pack_events(events))

    def read(data: bytes) -> Sequence[Event]:
        (frame,) = FrameReader(TO_GATEWAY).feed(data)
        return unpack_events(decode(frame))

    rows: dict[str, object] = {}
    cases: dict[str, list[Event]] = {
        f"{size} tokens": [token(i) for i in range(size)] for size in BATCHES
    }
    alternatives = Logprobs(-0.1, tuple((i, -1.0 * i) for i in range(5)))
    cases["8 tokens with 5 logprobs"] = [token(i, alternatives) for i in range(8)]
    for name, events in cases.items():
        data = write(events)
        assert read(data) == events
        rows[name] = {
            "worker_us_per_token": round(
                microseconds(partial(write, events), 3000) / len(events), 3
            ),
            "gateway_us_per_token": round(microseconds(partial(read, data), 3000) / len(events), 3),
            "bytes_per_token": round(len(data) / len(events), 1),
        }
    for pages in (125, 1000):
        data = write([offer(pages)])
        rows[f"offer of {pages} pages"] = {
            "worker_us": round(microseconds(partial(write, [offer(pages)]), 300), 1),
            "gateway_us": round(microseconds(partial(read, data), 300), 1),
            "bytes": len(data),
        }
    return rows


class BenchWorker:
    """Takes everything; says what is asked of it by the first token of a prompt: a batch size."""

    def __init__(self) -> None:
        model = ModelInfo(
            name="m",
            identity=IDENTITY,
            numerics="none",
            vocab_size=50_000,
            context_len=10**6,
            eos_token_ids=(0,),
            kv_bytes_per_token=1,
        )
        self.info = WorkerInfo(
            id=WorkerId("w0"), incarnation=Incarnation("i0"), model=model, max_model_len=10**6
        )
        self._batch: asyncio.Queue[int] = asyncio.Queue()

    async def add(self, request: Request, stage: Stage = Stage.WHOLE) -> Admitted:
        if request.prompt[0] in BATCHES and request.id == token(0).request:
            self._batch.put_nowait(request.prompt[0])
        return Admitted(request=request.id, attempt=request.attempt)

    async def abort(self, id: RequestId, attempt: int, sequence: int | None = None) -> Aborted:
        return Aborted(request=id, sequences=(0,))

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            size = await self._batch.get()
            for start in range(0, TOKENS, size):
                yield [token(i) for i in range(start, start + size)]
                await asyncio.sleep(0)

    def view(self) -> WorkerView:
        fields = WorkerView.__dataclass_fields__
        return WorkerView(**dict.fromkeys(fields, 0))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(id: RequestId, prompt: tuple[int, ...]) -> Request:
    return Request(id=id, prompt=prompt, sampling=SAMPLING, deadline=time.monotonic() + 600)


async def link_costs(link: RemoteWorker, worker_pid: int) -> dict[str, object]:
    rows: dict[str, object] = {}
    reader = link.events()
    for index in range(64):
        await link.add(request(token(index).request, (3,)))
    for size in BATCHES:
        await link.abort(token(0).request, 1)
        before = cpu_s(worker_pid), time.process_time(), time.monotonic()
        await link.add(request(token(0).request, (size,)))
        got = 0
        while got < TOKENS // size * size:
            got += len(await anext(reader))
        rows[f"tokens, {size} a step"] = {
            "worker_us_per_token": round((cpu_s(worker_pid) - before[0]) / got * 1e6, 2),
            "gateway_us_per_token": round((time.process_time() - before[1]) / got * 1e6, 2),
            "tokens_per_s": round(got / (time.monotonic() - before[2])),
        }
    for length in (60, 1000):
        prompt = tuple(i * 7919 % 49152 for i in range(length))
        before = cpu_s(worker_pid), time.process_time(), time.monotonic()
        for number in range(REQUESTS):
            id = RequestId(f"chatcmpl-{number + 1000:032x}")
            await link.add(request(id, prompt))
            await link.abort(id, 1)
        rows[f"add and abort, prompt of {length}"] = {
            "worker_us": round((cpu_s(worker_pid) - before[0]) / REQUESTS * 1e6, 1),
            "gateway_us": round((time.process_time() - before[1]) / REQUESTS * 1e6, 1),
            "round_trips_us": round((time.monotonic() - before[2]) / REQUESTS * 1e6, 1),
        }
    return rows


async def measure() -> dict[str, object]:
    cores = sorted(os.sched_getaffinity(0))
    joined: asyncio.Queue[RemoteWorker] = asyncio.Queue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gateway.sock"
        door = JoinSocket(
            path,
            judge=partial(judge_join, identity=IDENTITY, max_workers=1),
            welcome=Welcome(
                gateway=Incarnation("g0"), heartbeat_s=0.25, lost_after_s=30.0, lease_ttl_s=10.0
            ),
            on_join=joined.put_nowait,
            clock=time.monotonic,
        )
        await door.start()
        worker = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--worker", str(path), str(cores[-1])
        )
        os.sched_setaffinity(0, {cores[0]})
        try:
            return await link_costs(await asyncio.wait_for(joined.get(), 30), worker.pid)
        finally:
            worker.kill()
            await worker.wait()
            await door.close()


async def serve_worker(path: Path) -> None:
    async def new_life() -> None:
        sys.exit("the link broke")

    port = WorkerPort(BenchWorker(), path, new_life=new_life, clock=time.monotonic)  # type: ignore[arg-type]
    await port.run()


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        os.sched_setaffinity(0, {int(sys.argv[3])})
        uvloop.run(serve_worker(Path(sys.argv[2])))
        return
    rows = {"code": code_costs(), "link": uvloop.run(measure())}
    print(json.dumps(rows, indent=2))
    print(result.write("wire", rows))


if __name__ == "__main__":
    main()
