"""The scheduler, driven in any order that a driver may choose, under the numbered laws."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from test_scheduler_laws import alone

from antiphon.core.said_by_workers import wrong_in_view
from antiphon.core.scheduler import admission, batching
from antiphon.core.scheduler.receiving import Receiving
from antiphon.errors import BugError
from antiphon.sim import (
    RunLog,
    ScriptedEngine,
    ShadowStore,
    StoreSide,
    hashed_script,
)
from antiphon.sim.law import check_pages
from antiphon.testing import laws
from antiphon.testing.strategies import VOCAB_SIZE, WorkerSetup, fetches, requests, worker_setups
from antiphon.types import Admitted, Fetch, Request, RequestId, StepPlan

SCRIPT = hashed_script(VOCAB_SIZE)


class SchedulerMachine(RuleBasedStateMachine):
    """All methods in any order; some samples are faults, some blocks of the store are lost."""

    faulty_parts: ClassVar[dict[str, Any]] = {}

    @initialize(setup=worker_setups())
    def build(self, setup: WorkerSetup) -> None:
        setup = replace(setup, parts=replace(setup.parts, **self.faulty_parts))
        self.setup = setup
        memory = setup.shadow()
        self.lost: frozenset[int] = frozenset()
        self.store = StoreSide(ShadowStore(), memory, lost=lambda _: self.lost)
        self.scheduler = setup.build(self.store.listen)
        self.fetches: list[Fetch] = []
        self.now = 0.0
        self.plan: StepPlan | None = None
        self.log = RunLog()
        self.requests: dict[RequestId, Request] = {}
        self.living: list[RequestId] = []
        self.faulty = False
        self.engine = ScriptedEngine(self.script, shadow=memory)

    def script(self, request: Request, sequence: int, index: int) -> int | str:
        return "logits are not finite" if self.faulty else SCRIPT(request, sequence, index)

    def note(self, *happenings) -> None:
        self.log.happenings += ((self.now, what) for what in happenings)

    def put(self) -> None:
        for block in self.store.seal_fresh():
            assert self.store.put(block)

    @rule(data=st.data(), fetch=fetches())
    def add(self, data: st.DataObject, fetch: int) -> None:
        request = data.draw(requests(id=f"r{len(self.requests)}", now=self.now))
        answer = self.scheduler.add(request, self.now, fetch=fetch)
        self.requests[request.id] = request
        self.note(answer)
        if isinstance(answer, Admitted):
            self.living.append(request.id)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), sequence=st.sampled_from([None, 0, 1]))
    def abort(self, data: st.DataObject, sequence: int | None) -> None:
        id = data.draw(st.sampled_from(self.living))
        self.note(self.scheduler.abort(id, self.now, sequence))

    @rule(wait_s=st.sampled_from([0.0, 0.1, 0.5]))
    def expire(self, wait_s: float) -> None:
        self.now += wait_s
        self.note(*self.scheduler.expire(self.now))
        deadline = self.scheduler.next_deadline()
        assert deadline is None or deadline > self.now

    @precondition(lambda self: self.plan is None)
    @rule()
    def step(self) -> None:
        self.plan = self.scheduler.step(self.now)
        self.fetches += self.scheduler.fetches()
        view = self.scheduler.view(self.now)
        if self.plan is None:
            assert not view.running, "I8: idle while there is work"
            assert not view.waiting or self.fetches, "I8: idle while there is work"
            return
        config = self.setup.config
        laws.check_budget(
            self.plan,
            max_tokens=config.max_batched_tokens,
            max_sequences=config.max_num_seqs,
        )
        full = sum(len(chunk.tokens) for chunk in self.plan.chunks) == config.max_batched_tokens
        if not full:
            computing = {chunk.request.id for chunk in self.plan.chunks}
            assert len(computing) == view.running, "I8: a running request is left out"
            assert not view.waiting or self.scheduler.deferred, "I8: somebody waits for no reason"

    @precondition(lambda self: self.plan is not None)
    @rule(faulty=st.sampled_from([False, False, False, False, True]))
    def complete(self, faulty: bool) -> None:
        plan, self.plan = self.plan, None
        assert plan is not None
        self.faulty = faulty
        result = self.engine.forward(plan)
        self.note(*self.scheduler.complete(plan, result, self.now))
        self.put()

    @precondition(lambda self: self.fetches)
    @rule(which=st.integers(0, 9), lost=st.frozensets(st.integers(0, 6), max_size=2))
    def end_fetch(self, which: int, lost: frozenset[int]) -> None:
        fetch = self.fetches.pop(which % len(self.fetches))
        self.lost = lost
        good = self.store.copy(fetch)
        self.note(*self.scheduler.fetched(fetch.request, fetch.attempt, good, self.now))
        self.put()

    @precondition(lambda self: self.plan is not None)
    @rule(begun=st.booleans(), rarely=st.integers(0, 4))
    def fail(self, begun: bool, rarely: int) -> None:
        """The pass breaks off before or after it wrote."""
        if rarely or self.plan is None:
            return
        plan, self.plan = self.plan, None
        if begun:
            self.engine.forward(plan)
        self.note(*self.scheduler.fail(plan, "out of memory", self.now))

    @invariant()
    def i3_pages_are_conserved(self) -> None:
        if hasattr(self, "scheduler"):
            view = self.scheduler.view(self.now)
            check_pages(view)
            assert not wrong_in_view(view), "its gateway would drop it"

    def teardown(self) -> None:
        """I1, I2, I4, I9: run to the end; all has ended once, and nothing is left."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(5000):
            if self.plan is not None:
                self.complete(faulty=False)
            self.step()
            if self.plan is None and not self.fetches:
                break
            while self.fetches:
                self.end_fetch(0, frozenset())
        self.note(*self.scheduler.expire(self.now))
        laws.check_drained(self.scheduler.view(self.now))
        living = [self.requests[id] for id in self.living]
        laws.check_conservation(self.log, living)
        laws.check_tokens(self.log, living)
        laws.check_started(self.log, living)
        for request in living:
            for sequence, tokens in laws.tokens_of(self.log, request).items():
                wanted = alone(self.setup, request, sequence)
                assert tokens == wanted[: len(tokens)], "I9: other tokens than without a store"


SchedulerMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None
)
TestSchedulerMachine = SchedulerMachine.TestCase


# ── negative controls ─────────────────────────────────────────────────────────────────────────


class NeverStarts(admission.Admission):
    """Waits although nothing runs."""

    def crowded(self, candidate, crowd):
        return admission.Deferred(admission.DeferReason.BUDGET, "not today")


def favours(running, memory, **others):
    """Leaves out all but one of those that run."""
    return batching.batch([*running][:1], memory, **others)


class CountsBadBlocks(Receiving):
    """Takes what a fetch says of its blocks for granted."""

    def _count(self, flight, good):
        super()._count(flight, (True,) * len(good))


class StartsFirst(Receiving):
    """Says that a request starts before it says that its KV has come."""

    def fetched(self, *facts):
        return super().fetched(*facts)[::-1]


class ForgetsPages(Receiving):
    """Whoever ends while blocks are on their way leaves its pages behind."""

    def _arrive(self, flight):
        for part in flight.parts:
            if part.sequence.ended:
                part.sequence.table = []
        return super()._arrive(flight)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"receiving": CountsBadBlocks}, "I5"),
        ({"receiving": StartsFirst}, "I6"),
        # Pages that nobody gives back are missed at the end, or by who finds no room before.
        ({"receiving": ForgetsPages}, "I4|yet nothing runs"),
        ({"admission": NeverStarts}, "I8: idle while there is work"),
        ({"batch": favours}, "I8: a running request is left out"),
    ],
)
def test_the_machine_finds(parts: dict[str, Any], message: str) -> None:
    class Faulty(SchedulerMachine):
        faulty_parts = parts

    search = settings(
        max_examples=4000,  # it ends with the first: which one depends on what else was imported
        stateful_step_count=20,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises((AssertionError, BugError), match=message):
        run_state_machine_as_test(Faulty, settings=search)
