"""CPU time of the gateway: per request and per streamed token, model scripted.

    PYTHONPATH=src python benchmarks/gateway.py            measure, write results/gateway.json
    PYTHONPATH=src python benchmarks/gateway.py --profile  where the time goes (cProfile)

The server is a process of its own on one core: uvicorn, the application, the real tokenizer and
chat template. Load comes from this process on another core: keep-alive connections that each send
the next request when they have the whole answer. CPU time is the server's, from /proc/PID/stat.

Two workers stand behind it: `script` answers from a list (what is left is the gateway alone), and
`scheduler` is the real in-process worker with its scheduler over a scripted engine.
"""

import argparse
import asyncio
import cProfile
import io
import json
import os
import pstats
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import result
import uvicorn
import uvloop

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.requests import SoleWorker
from antiphon.core.scheduler import Scheduler
from antiphon.live.gateway import (
    Gateway,
    Keyring,
    Metrics,
    Ports,
    Prompts,
    Served,
    Service,
    create_app,
)
from antiphon.live.worker import Worker
from antiphon.sim import ScriptedEngine
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import (
    Aborted,
    Admitted,
    Event,
    FinishReason,
    HttpConfig,
    Incarnation,
    KvConfig,
    ModelInfo,
    Request,
    RequestId,
    SchedulerConfig,
    SequenceEnded,
    Started,
    TokenGenerated,
    Unknown,
    WorkerId,
    WorkerInfo,
    WorkerView,
)

PORT = 8123
CONNECTIONS = 32
WORDS = " the quick brown fox jumps over a lazy dog and then sleeps in the sun"


@dataclass(frozen=True)
class Load:
    """One kind of request."""

    name: str
    prompt_chars: int
    max_tokens: int
    stream: bool
    requests: int

    def body(self, number: int) -> bytes:
        text = f"{number:08d}" + WORDS * (self.prompt_chars // len(WORDS) + 1)
        message = {"role": "user", "content": text[: self.prompt_chars]}
        return json.dumps(
            {
                "model": "scripted",
                "messages": [message],
                "max_tokens": self.max_tokens,
                "stream": self.stream,
                "temperature": 0,
            }
        ).encode()


LOADS = (
    Load("chat, 1 token out", 160, 1, False, 6000),
    Load("chat, 16 tokens streamed", 160, 16, True, 3000),
    Load("4 KB prompt, 1 token out", 4096, 1, False, 3000),
    Load("chat, 256 tokens streamed", 160, 256, True, 400),
)


# The server process


class ScriptLink:
    """A worker that costs next to nothing: each pass of the loop is one step for everyone."""

    def __init__(self, info: WorkerInfo, words: Sequence[int]) -> None:
        self.info = info
        self._words = words
        self._running: dict[RequestId, tuple[Request, int]] = {}
        self._news = asyncio.Event()

    async def add(self, request: Request) -> Admitted:
        self._running[request.id] = (request, 0)
        self._news.set()
        return Admitted(request=request.id)

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        self._running.pop(id, None)
        return Unknown(request=id)

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            if not self._running:
                self._news.clear()
                await self._news.wait()
            yield self._step()
            await asyncio.sleep(0)

    def _step(self) -> list[Event]:
        events: list[Event] = []
        for id, (request, index) in list(self._running.items()):
            if index == 0:
                events.append(Started(request=id, attempt=1, cached_tokens=0, queued_s=0.0))
            token = self._words[index % len(self._words)]
            events.append(
                TokenGenerated(request=id, attempt=1, sequence=0, index=index, token=token)
            )
            if index + 1 == request.sampling.max_tokens:
                del self._running[id]
                reason = FinishReason.LENGTH
                events.append(SequenceEnded(request=id, attempt=1, sequence=0, reason=reason))
            else:
                self._running[id] = (request, index + 1)
        return events

    def view(self) -> WorkerView:
        raise NotImplementedError("nobody reads metrics here")


def worker_info(tokenizer: Tokenizer) -> WorkerInfo:
    model = ModelInfo(
        name="scripted",
        identity=b"\x01" * 32,
        numerics="script",
        vocab_size=tokenizer.vocab_size,
        context_len=8192,
        eos_token_ids=tokenizer.eos_token_ids,
        kv_bytes_per_token=1,
    )
    return WorkerInfo(
        id=WorkerId("w0"), incarnation=Incarnation("i0"), model=model, max_model_len=8192
    )


async def serve(kind: str) -> None:
    source = open_checkpoint(resolve("smollm2-135m")).tokenizer
    tokenizer = Tokenizer.load(source)
    template = ChatTemplate(source.chat_template, tokenizer.bos_token, tokenizer.eos_token)
    info = worker_info(tokenizer)
    words = tokenizer.encode(WORDS)
    if kind == "script":
        await _serve(ScriptLink(info, words), tokenizer, template)
        return
    scheduler = Scheduler(
        config=SchedulerConfig(max_num_seqs=64, max_batched_tokens=4096),
        kv=KvConfig(),
        pages=20_000,
        model=info.model,
        max_model_len=info.max_model_len,
    )
    engine = ScriptedEngine(lambda request, sequence, index: words[index % len(words)])
    async with Worker(info, scheduler, engine, clock=time.monotonic) as worker:
        await _serve(worker, tokenizer, template)


async def _serve(link, tokenizer: Tokenizer, template: ChatTemplate) -> None:
    config = HttpConfig()
    info = link.info
    metrics = Metrics("scripted")
    served = Served(model=info.model, max_model_len=info.max_model_len)
    gateway = Gateway(SoleWorker(info.id), served, tokenizer, metrics, Ports(clock=time.monotonic))
    service = Service(
        gateway=gateway,
        prompts=Prompts(tokenizer, template),
        metrics=metrics,
        served=served,
        served_name="scripted",
        config=config,
        clock=time.monotonic,
        created=0,
    )
    pump = asyncio.create_task(gateway.run())
    gateway.join(link)
    app = create_app(service, Keyring())
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=PORT,
            log_level="warning",
            access_log=False,
            lifespan="off",
            proxy_headers=False,
        )
    )
    await server.serve()
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)


# The load process


async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    deadline = time.monotonic() + 60
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", PORT, limit=1 << 20)
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def one_connection(load: Load, numbers) -> int:
    """Send requests until `numbers` is used up; returns how many event-stream writes were seen."""
    reader, writer = await connect()
    parts = 0
    for number in numbers:
        body = load.body(number)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        if load.stream:
            while True:
                size = int((await reader.readuntil(b"\r\n")).strip(), 16)
                await reader.readexactly(size + 2)
                if not size:
                    break
                parts += 1
        else:
            length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
    writer.close()
    return parts


async def run_load(load: Load, start: int, count: int) -> int:
    numbers = iter(range(start, start + count))
    return sum(await asyncio.gather(*(one_connection(load, numbers) for _ in range(CONNECTIONS))))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(load: Load, pid: int) -> dict[str, float]:
    await run_load(load, 0, load.requests // 10)
    before, began = cpu_s(pid), time.monotonic()
    parts = await run_load(load, load.requests, load.requests)
    used, took = cpu_s(pid) - before, time.monotonic() - began
    per_request_us = used / load.requests * 1e6
    row = {
        "cpu_us_per_request": round(per_request_us, 1),
        "requests_per_s": round(load.requests / took, 1),
        "requests": load.requests,
    }
    if load.stream:
        row["writes_per_request"] = round(parts / load.requests, 2)
    return row


async def measure_all(kind: str) -> dict[str, object]:
    cores = sorted(os.sched_getaffinity(0))
    server = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", kind, "--core", str(cores[0])
    )
    os.sched_setaffinity(0, set(cores[1:]) or set(cores))
    try:
        rows = {load.name: await measure(load, server.pid) for load in LOADS}
    finally:
        server.send_signal(signal.SIGTERM)
        await server.wait()
        os.sched_setaffinity(0, set(cores))
    short, long = (rows[f"chat, {n} tokens streamed"]["cpu_us_per_request"] for n in (16, 256))
    return {**rows, "cpu_us_per_streamed_token": round((long - short) / 240, 2)}


def profile(kind: str) -> None:
    """Serve and load in one process under cProfile; absolute times are inflated."""

    async def both() -> None:
        serving = asyncio.create_task(serve(kind))
        for load in LOADS[:3]:
            await run_load(load, 0, 200)
            with cProfile.Profile() as profiler:
                await run_load(load, 1000, 600)
            text = io.StringIO()
            pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(35)
            print(load.name, text.getvalue())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    uvloop.run(both())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=("script", "scheduler"))
    parser.add_argument("--core", type=int)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.serve:
        os.sched_setaffinity(0, {arguments.core})
        uvloop.run(serve(arguments.serve))
    elif arguments.profile:
        profile("script")
    else:
        rows = {kind: uvloop.run(measure_all(kind)) for kind in ("script", "scheduler")}
        print(json.dumps(rows, indent=2))
        print(result.write("gateway", rows))


if __name__ == "__main__":
    main()
