"""A scheduler beside a store: the test says when a fetch ends, and what of it can be had."""

from collections.abc import Collection

from scheduler_bench import SETUP, request

from antiphon.core.scheduler import Scheduler
from antiphon.sim import ScriptedEngine, ShadowStore, StoreSide
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import Admitted, Fetch, LeaseId, Stage, StepPlan

LEASE = LeaseId("lease")


class FetchBench:
    """Every token is 9, so that what a run leaves in the store is known to the next one."""

    def __init__(self, store: ShadowStore | None = None, setup: WorkerSetup = SETUP) -> None:
        self.memory = setup.shadow()
        self.store = ShadowStore() if store is None else store
        self.lost: Collection[int] = ()
        self.side = StoreSide(self.store, self.memory, lost=lambda _: self.lost)
        self.scheduler: Scheduler = setup.build(self.side.listen)
        self.engine = ScriptedEngine(lambda *_: 9, shadow=self.memory)

    def add(self, one, fetch: int = 1000, *, lease: LeaseId | None = None) -> None:
        stage = Stage.WHOLE if lease is None else Stage.PREFILL
        answer = self.scheduler.add(one, 0.0, stage, lease, fetch)
        assert isinstance(answer, Admitted)

    def turn(self) -> tuple[StepPlan, list]:
        plan = self.scheduler.step(0.0)
        assert plan is not None
        return plan, self.complete(plan)

    def complete(self, plan: StepPlan) -> list:
        events = list(self.scheduler.complete(plan, self.engine.forward(plan), 0.0))
        self.put()
        return events

    def put(self) -> None:
        for block in self.side.seal_fresh():
            assert self.side.put(block)

    def begin(self) -> Fetch:
        """The only thing to do is to fetch."""
        assert self.scheduler.step(0.0) is None
        (fetch,) = self.scheduler.fetches()
        return fetch

    def end(self, fetch: Fetch, lost: Collection[int] = ()) -> list:
        self.lost = lost
        good = self.side.copy(fetch)
        events = list(
            self.scheduler.fetched(fetch.request, fetch.attempt, good, 0.0, "lost" if lost else "")
        )
        self.put()
        return events

    def finish(self) -> list:
        events: list = []
        while (plan := self.scheduler.step(0.0)) is not None or (
            fetches := self.scheduler.fetches()
        ):
            events += self.complete(plan) if plan is not None else self.end(fetches[0])
        return events


def filled(prompt: tuple[int, ...], setup: WorkerSetup = SETUP, **changes) -> ShadowStore:
    """A store that has all blocks of a request which ran elsewhere."""
    bench = FetchBench(setup=setup)
    bench.add(request("elsewhere", prompt, **changes), 0)
    bench.finish()
    return bench.store
