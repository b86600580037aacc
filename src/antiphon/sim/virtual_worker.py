"""One worker in virtual time: the live scheduler, a scripted engine, a log of all that happens."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.core.scheduler import Scheduler
from antiphon.types import (
    Aborted,
    Admitted,
    Awaited,
    Engine,
    Fetch,
    Rejected,
    Request,
    RequestId,
    SchedulerEvent,
    Seconds,
    StepPlan,
    StepResult,
    Unknown,
    WorkerView,
)

from .coming_fetches import ComingFetches
from .scripted_engine import ScriptedEngine
from .shadow_store import StoreSide
from .virtual_loop import VirtualLoop


@dataclass(frozen=True, slots=True)
class Submit:
    """A request comes in at a point in time. `fetch`: as in `Scheduler.add`."""

    at: Seconds
    request: Request
    fetch: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody gives up a request, or one sequence of it."""

    at: Seconds
    request: RequestId
    sequence: int | None = None


Stimulus: TypeAlias = Submit | Cancel
Happening: TypeAlias = SchedulerEvent | Admitted | Rejected | Aborted | Unknown


@dataclass(slots=True)
class RunLog:
    """What a run did: each list is in order of time."""

    happenings: list[tuple[Seconds, Happening]] = field(default_factory=list)
    plans: list[tuple[Seconds, StepPlan]] = field(default_factory=list)
    views: list[tuple[Seconds, WorkerView]] = field(default_factory=list)
    """One after each step."""

    def of(self, request: RequestId) -> list[Happening]:
        """What happened to one request, in order."""
        return [what for _, what in self.happenings if what.request == request]


class VirtualWorker:
    """Drives a scheduler as the live worker does: expire, step, expire, run, complete.

    With a `store` its scheduler's listener is that store's, and fetches are carried out.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        engine: Engine,
        loop: VirtualLoop,
        store: StoreSide | None = None,
    ) -> None:
        self.log = RunLog()
        self._scheduler = scheduler
        self._engine = engine
        self._loop = loop
        self._store = store
        self._computing = False
        self._coming: ComingFetches | None = None
        if store is not None:
            self._coming = ComingFetches(store, loop.call_at, self._arriving)
        self._awake_at: Seconds | None = None

    def submit(self, request: Request, fetch: int = 0) -> Admitted | Rejected:
        """Hand in a request now."""
        answer = self._scheduler.add(request, self._loop.now, fetch=fetch)
        self._note(answer)
        self._wake(self._loop.now)
        return answer

    def cancel(self, request: RequestId, sequence: int | None = None) -> Aborted | Unknown:
        """Give up a request, or one sequence of it, now."""
        answer = self._scheduler.abort(request, self._loop.now, sequence)
        self._note(answer)
        self._wake(self._loop.now)
        return answer

    def _note(self, what: Happening) -> None:
        self.log.happenings.append((self._loop.now, what))

    def _wake(self, at: Seconds) -> None:
        """Look for work at that time, after all that is scheduled for it so far."""
        at = max(at, self._loop.now)
        if self._awake_at is None or at < self._awake_at:
            self._awake_at = at
            self._loop.call_at(at, lambda: self._turn(at))

    def _turn(self, at: Seconds) -> None:
        if self._awake_at != at:
            return
        self._awake_at = None
        self._expire()
        if not self._computing:
            self._compute()
        if self._store is not None and self._coming is not None:
            self._fetch(self._store, self._coming)
        deadline = self._scheduler.next_deadline()
        if deadline is not None:
            self._wake(deadline)

    def _expire(self) -> None:
        for event in self._scheduler.expire(self._loop.now):
            self._note(event)

    def _compute(self) -> None:
        plan = self._scheduler.step(self._loop.now)
        self._expire()
        if plan is None:
            return
        self._computing = True
        self.log.plans.append((self._loop.now, plan))
        if plan.awaits is not None:
            self._compute_early(plan, plan.awaits)
            return
        result = self._engine.forward(plan)
        ends_at = self._loop.now + result.elapsed_s
        self._loop.call_at(ends_at, lambda: self._complete(plan, result))

    def _compute_early(self, plan: StepPlan, awaits: Awaited) -> None:
        """KV that the plan reads is still on its way: what comes of it is known at its end."""
        coming, engine, now = self._coming, self._engine, self._loop.now
        assert coming is not None and isinstance(engine, ScriptedEngine)

        def ended() -> None:
            self._complete(plan, coming.result(plan, awaits, engine, self._loop.now))

        self._loop.call_at(coming.step_ends_at(awaits, now, engine.seconds(plan)), ended)

    def _complete(self, plan: StepPlan, result: StepResult) -> None:
        self._computing = False
        for event in self._scheduler.complete(plan, result, self._loop.now):
            self._note(event)
        self._put_fresh()
        self.log.views.append((self._loop.now, self._scheduler.view(self._loop.now)))
        self._wake(self._loop.now)

    def _put_fresh(self) -> None:
        """What was named just now goes to the store, a moment later."""
        if (store := self._store) is None:
            return
        at = self._loop.now + store.put_s
        for block in store.seal_fresh():
            self._loop.call_at(at, lambda block=block: store.put(block))

    def _arriving(
        self, request: RequestId, attempt: int, here: int, groups: int, group_s: Seconds
    ) -> None:
        self._scheduler.arriving(request, attempt, here, groups, group_s)
        self._wake(self._loop.now)

    def _fetch(self, store: StoreSide, coming: ComingFetches) -> None:
        def fetched(fetch: Fetch, good: tuple[bool, ...]) -> None:
            now, problem = self._loop.now, "" if all(good) else "lost"
            for event in self._scheduler.fetched(
                fetch.request, fetch.attempt, good, now, problem, store.fetch_s
            ):
                self._note(event)
            self._put_fresh()
            self._wake(now)

        for fetch in self._scheduler.fetches():
            coming.begin(fetch, self._loop.now, store.fetch_s, fetched)


def run_worker(
    scheduler: Scheduler,
    engine: Engine,
    stimuli: Iterable[Stimulus],
    *,
    store: StoreSide | None = None,
    max_actions: int = 1_000_000,
) -> RunLog:
    """Feed the stimuli at their times and run until nothing is left to do."""
    loop = VirtualLoop()
    worker = VirtualWorker(scheduler, engine, loop, store)
    for stimulus in stimuli:
        match stimulus:
            case Submit(at, request, fetch):
                loop.call_at(at, lambda request=request, fetch=fetch: worker.submit(request, fetch))
            case Cancel(at, request, sequence):
                loop.call_at(
                    at,
                    lambda request=request, sequence=sequence: worker.cancel(request, sequence),
                )
    loop.run(max_actions=max_actions)
    return worker.log
