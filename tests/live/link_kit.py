"""A worker that the test speaks for, and a gateway and a port over real sockets around it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.joining import judge_join
from antiphon.errors import PeerError
from antiphon.live.join_socket import JoinSocket
from antiphon.live.remote_worker import RemoteWorker
from antiphon.live.worker_port import WorkerPort
from antiphon.types import (
    Aborted,
    Admitted,
    Event,
    FinishReason,
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    ModelInfo,
    Offer,
    OfferedPage,
    OfferedSequence,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Role,
    SamplingParams,
    SequenceEnded,
    Stage,
    TokenGenerated,
    Unknown,
    Welcome,
    WorkerId,
    WorkerInfo,
    WorkerView,
)
from antiphon.wire import FrameStream

IDENTITY = b"\x07" * 32
KV = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=8)
WELCOME = Welcome(gateway=Incarnation("g0"), heartbeat_s=0.05, lost_after_s=20.0, lease_ttl_s=10.0)


def worker_info(name: str = "w0", life: str = "life-1") -> WorkerInfo:
    model = ModelInfo(
        name="m",
        identity=IDENTITY,
        numerics="script",
        vocab_size=1000,
        context_len=10_000,
        eos_token_ids=(0,),
        kv_bytes_per_token=256,
    )
    return WorkerInfo(
        id=WorkerId(name), incarnation=Incarnation(life), model=model, max_model_len=10_000, kv=KV
    )


def request(name: str = "r", *, attempt: int = 1, n: int = 1, **changes) -> Request:
    sampling = SamplingParams(n=n, max_tokens=100, seed=1)
    made = Request(id=RequestId(name), prompt=(1, 2, 3), sampling=sampling, attempt=attempt)
    return replace(made, **changes)


def token(of: Request, index: int, sequence: int = 0) -> TokenGenerated:
    return TokenGenerated(
        request=of.id, attempt=of.attempt, sequence=sequence, index=index, token=500 + index % 500
    )


def ended(of: Request, sequence: int = 0) -> SequenceEnded:
    return SequenceEnded(
        request=of.id, attempt=of.attempt, sequence=sequence, reason=FinishReason.STOP
    )


def offer(of: Request, *, lease: str = "lease", pages: int = 2) -> Offer:
    return Offer(
        request=of.id,
        attempt=of.attempt,
        lease=LeaseId(lease),
        ttl_s=10.0,
        owner=WorkerId("w0"),
        incarnation=Incarnation("life-1"),
        kv=KV,
        numerics="script",
        pages=tuple(OfferedPage(page, 2, 2**64 - 1 - page) for page in range(pages)),
        sequences=(OfferedSequence(0, 3, tuple(range(pages))),),
    )


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Return when it holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)


async def turns(count: int = 50) -> None:
    """Return when the loop has done all that it could do without anybody's help."""
    for _ in range(count):
        await asyncio.sleep(0)


class PuppetWorker:
    """Implements `WorkerLink`. Takes everything, and says what the test puts into `say`."""

    def __init__(self, info: WorkerInfo) -> None:
        self.info = info
        self.running: dict[RequestId, Request] = {}
        self._open: dict[RequestId, set[int]] = {}
        self.heard: list[tuple[object, ...]] = []
        self.reads = 0
        self.refuse: Rejected | None = None
        self.fail: BaseException | None = None
        self.hold: asyncio.Event | None = None
        """Every add waits for it."""
        self._events: asyncio.Queue[Sequence[Event] | None] = asyncio.Queue()

    async def add(
        self, request: Request, stage: Stage = Stage.WHOLE, fetch: int = 0
    ) -> Admitted | Rejected:
        self.heard.append(("add", request, stage))
        return await self._take(request)

    async def adopt(self, request: Request, offer: Offer) -> Admitted | Rejected:
        self.heard.append(("adopt", request, offer))
        return await self._take(request)

    async def _take(self, request: Request) -> Admitted | Rejected:
        if self.fail is not None:
            raise self.fail
        if self.hold is not None:
            await self.hold.wait()
        if self.refuse is not None:
            return replace(self.refuse, request=request.id, attempt=request.attempt)
        if not 1 <= request.sampling.n <= 64:
            reason = RejectReason.INVALID
            return Rejected(request=request.id, reason=reason, message="n", attempt=request.attempt)
        self.running[request.id] = request
        self._open[request.id] = set(range(request.sampling.n)) - set(request.done)
        return Admitted(request=request.id, ahead=len(self.running) - 1, attempt=request.attempt)

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        self.heard.append(("abort", id, attempt, sequence))
        running = self.running.get(id)
        if running is None or running.attempt != attempt:
            return Unknown(request=id)
        open = self._open[id]
        ends = (set(open) if sequence is None else {sequence}) & open
        open -= ends
        if not open:
            del self.running[id], self._open[id]
        return Aborted(request=id, sequences=tuple(sorted(ends))) if ends else Unknown(request=id)

    async def grant(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        self.heard.append(("grant", lease, taker, attempt))
        return LeaseHeld(lease)

    async def renew(self, leases: Sequence[LeaseId]) -> None:
        self.heard.append(("renew", tuple(leases)))

    async def release(self, lease: LeaseId) -> None:
        self.heard.append(("release", lease))

    async def set_role(self, role: Role) -> None:
        self.info = replace(self.info, role=role)

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while (batch := await self._events.get()) is not None:
            self.reads += 1
            yield batch

    def view(self) -> WorkerView:
        return WorkerView(
            running=len(self.running),
            waiting=0,
            free_pages=8,
            held_pages=0,
            cached_pages=0,
            total_pages=8,
            peak_pages=0,
            prefix_queried_tokens_total=0,
            prefix_hit_tokens_total=0,
            preemptions_total=0,
            steps_total=self.reads,
            computed_tokens_total=0,
        )

    def say(self, *events: Event) -> None:
        self._events.put_nowait(events)

    def stop(self) -> None:
        self._events.put_nowait(None)

    def calls(self, name: str) -> list[tuple[object, ...]]:
        return [call[1:] for call in self.heard if call[0] == name]


class Lives:
    """Counts the lives of a puppet; each has an incarnation of its own."""

    def __init__(self, worker: PuppetWorker) -> None:
        self.worker = worker
        self.left: list[set[RequestId]] = []
        """What still ran when each life was over."""

    async def next(self) -> None:
        self.left.append(set(self.worker.running))
        life = Incarnation(f"life-{len(self.left) + 1}")
        self.worker.info = replace(self.worker.info, incarnation=life)


class Door:
    """A gateway's socket, and the workers that came through it."""

    def __init__(self, folder: Path, *, clock=time.monotonic, welcome=WELCOME, **settings) -> None:
        self.path = folder / "gateway.sock"
        self.links: list[RemoteWorker] = []
        self.came = asyncio.Event()
        limits = {"identity": IDENTITY, "max_workers": settings.pop("max_workers", 8)}
        judge = settings.pop("judge", partial(judge_join, **limits))
        self.socket = JoinSocket(
            self.path, judge=judge, welcome=welcome, on_join=self._joined, clock=clock, **settings
        )

    def _joined(self, link: RemoteWorker) -> None:
        self.links.append(link)
        self.came.set()

    async def link(self, number: int = 0) -> RemoteWorker:
        await until(lambda: len(self.links) > number)
        return self.links[number]

    async def __aenter__(self) -> "Door":
        await self.socket.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.socket.close()


@dataclass
class Serving:
    """The worker's end, running."""

    port: WorkerPort
    run: asyncio.Task[None]
    lives: Lives

    @property
    def stream(self) -> FrameStream:
        assert self.port._stream is not None
        return self.port._stream


@asynccontextmanager
async def port(
    worker: PuppetWorker, gateway: Path, *, clock=time.monotonic
) -> AsyncIterator[Serving]:
    """A worker's port, until the block is left."""
    lives = Lives(worker)
    made = WorkerPort(worker, gateway, new_life=lives.next, clock=clock)
    async with running(made.run()) as task:
        yield Serving(made, task, lives)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A task, until the block is left."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def next_batch(reader) -> list:
    return list(await asyncio.wait_for(anext(reader), 10))


async def ends(reader) -> str:
    """Why the events are over; whatever still comes before is left out."""
    with pytest.raises(PeerError) as found:
        async with asyncio.timeout(10):
            while True:
                await anext(reader)
    return str(found.value)
