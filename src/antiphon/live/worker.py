"""A worker in this process: a scheduler on the event loop, an engine on a thread of its own.

    add, abort ──► Scheduler ──plan──► thread: engine.forward ──result──► Scheduler ──► Outbox
                     │    └──pulls, fetches──► KvExchange: KV of other workers and of the store
                     └──Prefilled, blocks──► KvExchange ──Offer──► Outbox

The scheduler is touched by the event loop alone, so it needs no lock, and `add` and `abort` take
effect at once even while the engine computes: what is aborted leaves the next plan, and pages that
the running pass uses return when it completes. Who starts is said before the pass begins: if it
kills the process, whoever reads knows whose pass it was. All other events of a step are handed out
after the next pass has begun, so that their reader works while the engine does.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from antiphon.core.handover import LEASES, LEASES_METHODS, LeaseBook
from antiphon.core.joining import same_pages
from antiphon.core.recorder import Entry, recorded
from antiphon.core.scheduler import SCHEDULER, SCHEDULER_METHODS, Scheduler
from antiphon.errors import BugError
from antiphon.types import (
    Aborted,
    Admitted,
    AttemptFailed,
    ComingKv,
    Engine,
    Event,
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    Offer,
    Prefilled,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Role,
    SchedulerEvent,
    Seconds,
    SequenceEnded,
    Stage,
    StepPlan,
    Unknown,
    WorkerInfo,
    WorkerView,
)

from .broken_pass import broken_off
from .engine_thread import EngineThread
from .kv_exchange import Exchange, KvExchange
from .lease_desk import LeaseDesk
from .open_requests import OpenRequests
from .outbox import Outbox

MAX_FAULTS_IN_A_ROW = 9
"""A request that breaks the engine is tried three times: three such end no worker that is well."""

_BROKE_OFF = "the engine failed in this step"

_log = logging.getLogger(__name__)


class Worker:
    """Implements `WorkerLink`. Use as `async with Worker(…) as worker`, or `start` and `close`.

    `clock` is monotonic. `log_decision`, if given, gets every decision of the scheduler, which must
    be fresh then, and must not raise. Without an `exchange` it runs whole requests only.
    """

    def __init__(
        self,
        info: WorkerInfo,
        scheduler: Scheduler,
        engine: Engine,
        *,
        clock: Callable[[], Seconds],
        log_decision: Callable[[Entry], None] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        self._info = info
        self._clock = clock
        self._scheduler = scheduler
        leases: LeaseBook = scheduler.leases
        if log_decision is not None:
            self._scheduler = recorded(SCHEDULER, scheduler, SCHEDULER_METHODS, log_decision)
            leases = recorded(LEASES, scheduler.leases, LEASES_METHODS, log_decision)
        self._live = OpenRequests()
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self.leases = LeaseDesk(leases, clock, self._wake.set)
        """Answers the gateway's and the takers' calls: see `peer_port.TakenLeases`."""
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._thread = EngineThread(engine, f"engine-{info.id}")
        self._kv: KvExchange | None = None
        if exchange is not None:
            self._kv = KvExchange(
                exchange if self._thread.layered else exchange.at_once(),
                self._scheduler,
                leases,
                lambda: self._info,
                clock=clock,
                on_events=self._happened,
                on_broken=self._break,
            )
        self._broken: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._refusal: str | None = None
        self._closing = False

    # ── the link ─────────────────────────────────────────────────────────────────────────────

    @property
    def info(self) -> WorkerInfo:
        """See `WorkerLink`."""
        return self._info

    async def add(
        self, request: Request, stage: Stage = Stage.WHOLE, fetch: int = 0
    ) -> Admitted | Rejected:
        """See `WorkerLink`."""
        if refused := self._refused(request, exchanges=stage is Stage.PREFILL):
            return refused
        lease = LeaseId(secrets.token_hex(16)) if stage is Stage.PREFILL else None
        fetch = fetch if self._kv is not None and self._kv.fetches else 0
        answer = self._scheduler.add(request, self._clock(), stage, lease, fetch)
        return self._taken_in(request, answer)

    async def adopt(self, request: Request, offer: Offer) -> Admitted | Rejected:
        """See `WorkerLink`. Of pages that are not laid out like ours nothing is used."""
        if refused := self._refused(request, exchanges=True):
            return refused
        if self._info.kv is None or not same_pages(self._info.kv, offer.kv):
            offer = replace(offer, pages=(), sequences=())
        return self._taken_in(request, self._scheduler.adopt(request, offer, self._clock()))

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        """See `WorkerLink`."""
        if self._scheduler.has(id, attempt):
            answer = self._scheduler.abort(id, self._clock(), sequence)
            if isinstance(answer, Aborted):
                self._live.ended(id, attempt, len(answer.sequences))
                self._stop_waiting(id, attempt)
            self._wake.set()
            return answer
        if self._kv is not None:
            ended = self._kv.abort_offer(id, attempt, sequence)
            if ended is not None:
                self._wake.set()
                return Aborted(request=id, sequences=ended)
        if sequence is None and self.leases.release_of(id, attempt):
            return Aborted(request=id, sequences=())
        return Unknown(request=id)

    async def grant(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """See `WorkerLink`."""
        return self.leases.grant(lease, taker, attempt)

    async def renew(self, leases: Sequence[LeaseId]) -> None:
        """See `WorkerLink`."""
        self.leases.renew(leases)

    async def release(self, lease: LeaseId) -> None:
        """See `WorkerLink`."""
        self.leases.release(lease)

    async def set_role(self, role: Role) -> None:
        """See `WorkerLink`. What was taken goes on as it was asked for."""
        self._info = replace(self._info, role=role)

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def events(self) -> AsyncIterator[Sequence[Event]]:
        """See `WorkerLink`. Raises the error that ended the worker, if one did."""
        return self._outbox.read()

    def view(self) -> WorkerView:
        """See `WorkerLink`."""
        view = self._thread.counted(self._scheduler.view(self._clock()))
        return view if self._kv is None else self._kv.counted(view)

    # ── its life ─────────────────────────────────────────────────────────────────────────────

    @property
    def healthy(self) -> bool:
        """False for good once the engine failed `MAX_FAULTS_IN_A_ROW` times, or the loop broke."""
        broken = self._task is not None and self._task.done() and not self._closing
        return self._thread.faults_in_a_row < MAX_FAULTS_IN_A_ROW and not broken

    @property
    def faults_total(self) -> int:
        """How many forward passes have failed."""
        return self._thread.faults_total

    def start(self) -> None:
        """Begin to run what is added. Needs a running event loop; once."""
        if self._task is not None:
            raise BugError(f"worker {self._info.id} was started twice")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="worker")
        self._task.add_done_callback(self._stopped)

    async def new_life(self, incarnation: Incarnation) -> None:
        """The gateway is gone: end all that it asked for, and be somebody else from now on.

        Nothing is said of what ends. Pages that a step or a pull writes return when it is over.
        """
        self._info = replace(self._info, incarnation=incarnation)
        self._end_all("the gateway is gone")
        self.leases.drop_all()

    async def drain(self) -> None:
        """Refuse what is new, and return when all that was taken has ended or been passed on."""
        self._refuse("the worker is shutting down")
        await self._quiet.wait()

    async def close(self) -> None:
        """Give up what is left, wait for the running pass, and stop the thread."""
        self._refuse("the worker is shutting down")
        self._closing = True
        self._outbox.put(self._end_all("the worker was shut down"))
        self._outbox.close()
        self.leases.drop_all()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._kv is not None:
            await self._kv.close()
        self._thread.shutdown()

    async def __aenter__(self) -> "Worker":
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            now = self._clock()
            self._expire(now)
            plan = self._scheduler.step(now)
            decided = self._expire(now)
            if self._kv is not None:
                self._kv.take()
            if self._broken is not None:
                raise self._broken
            if plan is None:
                await self._sleep()
            else:
                coming = self._kv.coming(plan) if self._kv is not None else None
                if decided:
                    await asyncio.sleep(0)  # the reader, unless it is behind, sends it in this turn
                self._outbox.put_step(await self._forward(plan, coming))
                await self._outbox.room()

    def _expire(self, now: Seconds) -> bool:
        """Say what has happened, if the scheduler wants it said; returns whether it does."""
        deadline = self._scheduler.next_deadline()
        if deadline is None or deadline > now:
            return False
        self._outbox.put(self._seen(self._scheduler.expire(now)))
        return True

    async def _sleep(self) -> None:
        """Nothing can be computed: use no time until something changes, or its time has come."""
        if not (self._live or self._scheduler.leases or self._kv):
            self._quiet.set()
        deadline = self._scheduler.next_deadline()
        wait_s = None if deadline is None else max(0.0, deadline - self._clock())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    async def _forward(self, plan: StepPlan, coming: ComingKv | None) -> Sequence[Event]:
        result = await self._thread.forward(plan, coming)
        if result is None:
            return self._failed(plan)
        if self._kv is not None and plan.awaits is not None and not result.broken_off:
            await self._kv.fetch_ended(plan.awaits)
        happened = self._scheduler.complete(plan, result, self._clock())
        events = self._seen(happened)
        if self._kv is not None:
            self._kv.step_ended(happened)
        return events

    def _failed(self, plan: StepPlan) -> Sequence[Event]:
        """The pass of this plan raised: give up whom it worked for, who may do better elsewhere;
        after too many in a row, give up all."""
        happened = self._scheduler.fail(plan, _BROKE_OFF, self._clock())
        if self._kv is not None:
            self._kv.step_ended(happened)
        broke, events = broken_off(self._seen(happened), _BROKE_OFF)
        events += self._give_up(broke, _BROKE_OFF)
        if self.healthy:
            return events
        message = f"the engine failed {self._thread.faults_in_a_row} times in a row"
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

    def _refused(self, request: Request, *, exchanges: bool) -> Rejected | None:
        """Why this worker takes nothing, or nothing of this kind."""
        if self._refusal is not None:
            reason, message = RejectReason.DRAINING, self._refusal
        elif exchanges and self._kv is None:
            reason = RejectReason.INVALID
            message = f"worker {self._info.id} exchanges no KV: it runs whole requests only"
        else:
            return None
        return Rejected(request=request.id, reason=reason, message=message, attempt=request.attempt)

    def _taken_in(self, request: Request, answer: Admitted | Rejected) -> Admitted | Rejected:
        if isinstance(answer, Admitted):
            self._live.take(request)
            self._quiet.clear()
            self._wake.set()
        return answer

    def _seen(self, events: Sequence[SchedulerEvent]) -> list[Event]:
        """Forget what these events end, and seal what is to be offered; returns the others."""
        said: list[Event] = []
        for event in events:
            match event:
                case Prefilled():
                    assert self._kv is not None
                    self._live.ended(event.request, event.attempt, len(event.sequences))
                    self._kv.offer(event)
                    continue
                case SequenceEnded():
                    self._live.ended(event.request, event.attempt, 1)
                    self._stop_waiting(event.request, event.attempt)
                case _:
                    pass
            said.append(event)
        return said

    def _happened(self, events: Sequence[SchedulerEvent]) -> None:
        """Something came of what is under way beside the steps."""
        self._outbox.put(self._seen(events))
        self._wake.set()

    def _stop_waiting(self, id: RequestId, attempt: int) -> None:
        """Once an attempt has ended, nobody waits for its pages."""
        if self._kv is not None and not self._live.has(id, attempt):
            self._kv.stop(id, attempt)

    def _break(self, error: BaseException) -> None:
        """A law was broken beside the loop: the loop raises it."""
        self._broken = error
        self._wake.set()

    def _end_all(self, message: str) -> list[Event]:
        """Give up all attempts. The scheduler keeps nothing but what a pass still uses."""
        given_up = [one for one in self._live if self._scheduler.has(*one)]  # others' end is said
        events = self._give_up(given_up, message)
        offers = self._kv.abort_offers() if self._kv is not None else ()
        events += (
            AttemptFailed(request=o.request, attempt=o.attempt, message=message) for o in offers
        )
        return events

    def _give_up(self, attempts: Iterable[tuple[RequestId, int]], message: str) -> list[Event]:
        """Nothing of these attempts goes on here."""
        events: list[Event] = []
        for id, attempt in attempts:
            if self._scheduler.has(id, attempt):
                answer = self._scheduler.abort(id, self._clock())
                if not isinstance(answer, Aborted):
                    continue
                self._live.ended(id, attempt, len(answer.sequences))
                self._stop_waiting(id, attempt)
            events.append(AttemptFailed(request=id, attempt=attempt, message=message))
        return events

    def _refuse(self, message: str) -> None:
        """The first reason stays: it is the cause."""
        self._refusal = self._refusal or message
