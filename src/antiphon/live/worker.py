"""A worker in this process: a scheduler on the event loop, an engine on a thread of its own.

    add, abort ──► Scheduler ──plan──► thread: engine.forward ──result──► Scheduler ──► Outbox

The scheduler is touched by the event loop alone, so it needs no lock, and `add` and `abort` take
effect at once even while the engine computes: what is aborted leaves the next plan, and pages that
the running pass uses return when it completes. A step's events are handed out after the next pass
has begun, so that their reader works while the engine does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from antiphon.core.recorder import Entry, recorded
from antiphon.core.scheduler import SCHEDULER, SCHEDULER_METHODS, Scheduler
from antiphon.errors import BugError
from antiphon.types import (
    Aborted,
    Admitted,
    Engine,
    Event,
    FinishReason,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Seconds,
    SequenceEnded,
    StepPlan,
    StepResult,
    Unknown,
    WorkerInfo,
    WorkerView,
)

from .outbox import Outbox

MAX_FAULTS_IN_A_ROW = 3

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Live:
    """A request that the scheduler holds."""

    attempt: int
    open_sequences: int


class Worker:
    """Implements `WorkerLink`. Use as `async with Worker(…) as worker`, or `start` and `close`.

    `clock` is monotonic. `log_decision`, if given, gets every decision of the scheduler, which must
    be fresh then, and must not raise.
    """

    def __init__(
        self,
        info: WorkerInfo,
        scheduler: Scheduler,
        engine: Engine,
        *,
        clock: Callable[[], Seconds],
        log_decision: Callable[[Entry], None] | None = None,
    ) -> None:
        self._info = info
        self._engine = engine
        self._clock = clock
        self._scheduler = scheduler
        if log_decision is not None:
            self._scheduler = recorded(SCHEDULER, scheduler, SCHEDULER_METHODS, log_decision)
        self._live: dict[RequestId, _Live] = {}
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"engine-{info.id}")
        self._task: asyncio.Task[None] | None = None
        self._refusal: str | None = None
        self._closing = False
        self._faults_in_a_row = 0
        self._faults_total = 0

    # ── the link ─────────────────────────────────────────────────────────────────────────────

    @property
    def info(self) -> WorkerInfo:
        """See `WorkerLink`."""
        return self._info

    async def add(self, request: Request) -> Admitted | Rejected:
        """See `WorkerLink`."""
        if self._refusal is not None:
            return Rejected(request=request.id, reason=RejectReason.DRAINING, message=self._refusal)
        answer = self._scheduler.add(request, self._clock())
        if isinstance(answer, Admitted):
            self._live[request.id] = _Live(request.attempt, request.sampling.n)
            self._quiet.clear()
            self._wake.set()
        return answer

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        """See `WorkerLink`."""
        live = self._live.get(id)
        if live is None or live.attempt != attempt:
            return Unknown(request=id)
        answer = self._scheduler.abort(id, self._clock(), sequence)
        if isinstance(answer, Aborted):
            self._ended(id, len(answer.sequences))
        return answer

    def events(self) -> AsyncIterator[Sequence[Event]]:
        """See `WorkerLink`. Raises the error that ended the worker, if one did."""
        return self._outbox.read()

    def view(self) -> WorkerView:
        """See `WorkerLink`."""
        return self._scheduler.view(self._clock())

    # ── its life ─────────────────────────────────────────────────────────────────────────────

    @property
    def healthy(self) -> bool:
        """False for good once the engine failed `MAX_FAULTS_IN_A_ROW` times, or the loop broke."""
        broken = self._task is not None and self._task.done() and not self._closing
        return self._faults_in_a_row < MAX_FAULTS_IN_A_ROW and not broken

    @property
    def faults_total(self) -> int:
        """How many forward passes have failed."""
        return self._faults_total

    def start(self) -> None:
        """Begin to run what is added. Needs a running event loop; once."""
        if self._task is not None:
            raise BugError(f"worker {self._info.id} was started twice")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="worker")
        self._task.add_done_callback(self._stopped)

    async def drain(self) -> None:
        """Refuse what is new, and return when all that was taken has ended."""
        self._refuse("the worker is shutting down")
        await self._quiet.wait()

    async def close(self) -> None:
        """End what is left with an error, wait for the running pass, and stop the thread."""
        self._refuse("the worker is shutting down")
        self._closing = True
        self._outbox.put(self._end_all("the worker was shut down"))
        self._outbox.close()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._thread.shutdown()

    async def __aenter__(self) -> "Worker":
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while not self._closing:
            now = self._clock()
            deadline = self._scheduler.next_deadline()
            if deadline is not None and deadline <= now:
                self._outbox.put(self._seen(self._scheduler.expire(now)))
            plan = self._scheduler.step(now)
            if plan is None:
                await self._sleep()
            else:
                self._outbox.put_step(await self._forward(plan))
                await self._outbox.room()

    async def _sleep(self) -> None:
        """Nothing waits or runs: use no time until the next add."""
        self._wake.clear()
        if not self._live:
            self._quiet.set()
        await self._wake.wait()

    async def _forward(self, plan: StepPlan) -> Sequence[Event]:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._thread, self._compute, plan)
        if isinstance(result, Exception):
            _log.error("forward pass %d failed", plan.number, exc_info=result)
            return self._failed(plan)
        self._faults_in_a_row = 0
        return self._seen(self._scheduler.complete(plan, result, self._clock()))

    def _compute(self, plan: StepPlan) -> StepResult | Exception:
        """On the engine's thread. Errors are returned: a future can't carry all of them."""
        try:
            return self._engine.forward(plan)
        except Exception as error:  # noqa: BLE001  whatever fails here, the others must be served
            return error

    def _failed(self, plan: StepPlan) -> Sequence[Event]:
        """The pass of this plan raised: end its sequences; after too many in a row, everything."""
        self._faults_total += 1
        self._faults_in_a_row += 1
        events = self._seen(
            self._scheduler.fail(plan, "the engine failed in this step", self._clock())
        )
        if self.healthy:
            return events
        message = f"the engine failed {self._faults_in_a_row} times in a row"
        _log.error("worker %s is unhealthy: %s", self._info.id, message)
        self._refuse(f"the worker is unhealthy: {message}")
        return [*events, *self._end_all(message)]

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """The loop is over: by `close`, or because a law was broken and state can't be trusted."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            _log.critical("worker %s stopped", self._info.id, exc_info=error)
        self._refuse("the worker is gone")
        self._outbox.close(error)
        self._quiet.set()

    # ── bookkeeping ──────────────────────────────────────────────────────────────────────────

    def _seen(self, events: Sequence[Event]) -> Sequence[Event]:
        """Forget the requests that these events end; returns the events."""
        for event in events:
            if isinstance(event, SequenceEnded):
                self._ended(event.request, 1)
        return events

    def _ended(self, id: RequestId, sequences: int) -> None:
        live = self._live[id]
        live.open_sequences -= sequences
        if not live.open_sequences:
            del self._live[id]

    def _end_all(self, message: str) -> Iterable[Event]:
        """End everything with an error. The scheduler keeps nothing but what a pass still uses."""
        events: list[Event] = []
        now = self._clock()
        for id, live in list(self._live.items()):
            answer = self._scheduler.abort(id, now)
            if isinstance(answer, Aborted):
                self._ended(id, len(answer.sequences))
                events += (
                    SequenceEnded(
                        request=id,
                        attempt=live.attempt,
                        sequence=sequence,
                        reason=FinishReason.ERROR,
                        message=message,
                    )
                    for sequence in answer.sequences
                )
        return events

    def _refuse(self, message: str) -> None:
        """The first reason stays: it is the cause."""
        self._refusal = self._refusal or message
