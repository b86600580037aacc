"""What the tests of the worker share: engines that can be held, and a reader that keeps books."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from antiphon.core.recorded_run import Setup
from antiphon.core.recorder import Entry
from antiphon.core.requests import RequestBook, SoleWorker
from antiphon.core.scheduler import Scheduler
from antiphon.live.worker import Worker
from antiphon.live.worker_link import WorkerLink
from antiphon.sim import ScriptedEngine, ShadowKv, hashed_script
from antiphon.types import (
    Abort,
    Command,
    Config,
    Deliver,
    Dispatch,
    Event,
    FinishReason,
    Incarnation,
    KvConfig,
    ModelInfo,
    Request,
    RequestId,
    RequestRecord,
    SamplingParams,
    SchedulerConfig,
    SequenceEnded,
    Settle,
    StepPlan,
    StepResult,
    TokenGenerated,
    TokenId,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)

VOCAB = 100
PAGE_TOKENS, BLOCK_TOKENS, PAGES = 4, 8, 128
SCRIPT = hashed_script(VOCAB)
MODEL = ModelInfo(
    name="scripted",
    identity=b"model",
    numerics="none",
    vocab_size=VOCAB,
    context_len=256,
    eos_token_ids=(),
    kv_bytes_per_token=1,
)
INFO = WorkerInfo(id=WorkerId("w0"), incarnation=Incarnation("i0"), model=MODEL, max_model_len=256)


def scheduler(max_batched_tokens: int = 32, pages: int = PAGES) -> Scheduler:
    return Scheduler(
        config=SchedulerConfig(max_num_seqs=16, max_batched_tokens=max_batched_tokens),
        kv=KvConfig(page_tokens=PAGE_TOKENS, block_tokens=BLOCK_TOKENS),
        pages=pages,
        model=MODEL,
        max_model_len=256,
    )


def setup(max_batched_tokens: int) -> Setup:
    """How `scheduler` builds it, as a decision log says it."""
    config = Config(
        scheduler=SchedulerConfig(max_num_seqs=16, max_batched_tokens=max_batched_tokens),
        kv=KvConfig(page_tokens=PAGE_TOKENS, block_tokens=BLOCK_TOKENS),
    )
    return Setup(
        program="test",
        config=config,
        pages=PAGES,
        model=MODEL,
        max_model_len=256,
        worker=INFO.id,
    )


def request(
    id: str, prompt: Sequence[TokenId] = (1, 2, 3), max_tokens: int = 4, n: int = 1, **rest: object
) -> Request:
    sampling = SamplingParams(n=n, max_tokens=max_tokens, seed=0)
    return Request(id=RequestId(id), prompt=tuple(prompt), sampling=sampling, **rest)  # pyright: ignore[reportArgumentType]


class Engine:
    """A scripted engine that checks its KV, keeps its plans, and fails where it is told to."""

    def __init__(
        self,
        fails: Callable[[StepPlan], bool] = lambda plan: False,
        error: type[Exception] = RuntimeError,
    ) -> None:
        self._scripted = ScriptedEngine(SCRIPT, shadow=ShadowKv(PAGE_TOKENS))
        self._fails = fails
        self._error = error
        self.plans: list[StepPlan] = []
        self.threads: set[str] = set()

    def forward(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        self.threads.add(threading.current_thread().name)
        if self._fails(plan):
            raise self._error("out of memory, or anything else")
        return self._scripted.forward(plan)


class HeldEngine(Engine):
    """Each pass begins, then waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = threading.Semaphore(0)
        self._let_go = threading.Semaphore(0)

    def forward(self, plan: StepPlan) -> StepResult:
        self._begun.release()
        assert self._let_go.acquire(timeout=60)
        return super().forward(plan)

    async def begun(self) -> None:
        """Wait until one more pass has begun."""
        assert await asyncio.to_thread(self._begun.acquire, timeout=60)

    def let_go(self, passes: int = 1) -> None:
        self._let_go.release(passes)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def worker(
    engine: Engine,
    *,
    clock: Callable[[], float] = time.monotonic,
    log_decision: Callable[[Entry], None] | None = None,
    **shape: int,
) -> Worker:
    return Worker(INFO, scheduler(**shape), engine, clock=clock, log_decision=log_decision)


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def next_events(worker: Worker) -> list[Event]:
    return list(await anext(worker.events()))


class Driver:
    """A gateway without HTTP: executes a `RequestBook`'s commands against a link."""

    def __init__(self, link: WorkerLink, watch: Callable[["Driver", TokenGenerated], None]) -> None:
        self.link = link
        self.book = RequestBook(SoleWorker(link.info.id))
        self.book.observe(WorkerJoined(link.info), time.monotonic())
        self.records: dict[RequestId, RequestRecord] = {}
        self.tokens: dict[tuple[RequestId, int], list[TokenId]] = {}
        self.settled = asyncio.Event()
        self._watch = watch
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader = asyncio.create_task(self._read())

    def start(self, request: Request) -> None:
        self.settled.clear()
        self.execute(self.book.start(request, time.monotonic()))

    def cancel(self, id: RequestId, sequence: int | None = None) -> None:
        self.execute(self.book.cancel(id, time.monotonic(), sequence))

    def execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Dispatch():
                    self._spawn(self._add(command.request))
                case Abort():
                    self._spawn(self._abort(command))
                case Deliver():
                    token = command.token
                    key = (token.request, token.sequence)
                    self.tokens.setdefault(key, []).append(token.token)
                    self._watch(self, token)
                case Settle():
                    assert command.record.request not in self.records
                    self.records[command.record.request] = command.record
                    if not self.book:
                        self.settled.set()
                case _:
                    pass

    async def finish(self) -> None:
        """All requests are settled and all calls answered."""
        await asyncio.wait_for(self.settled.wait(), 60)
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        await self._reader

    async def _read(self) -> None:
        async for events in self.link.events():
            for event in events:
                self.execute(self.book.heard(event, time.monotonic()))

    async def _add(self, request: Request) -> None:
        self.execute(self.book.heard(await self.link.add(request), time.monotonic()))

    async def _abort(self, abort: Abort) -> None:
        await self.link.abort(abort.request, abort.attempt, abort.sequence)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def ended(events: Sequence[Event]) -> list[tuple[RequestId, int, FinishReason]]:
    return [(e.request, e.sequence, e.reason) for e in events if isinstance(e, SequenceEnded)]
