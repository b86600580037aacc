"""The survey on an engine whose times are known, on a clock that only its steps move."""

from dataclasses import dataclass, field, replace
from itertools import groupby

import pytest

from antiphon.core.costs import StepTime
from antiphon.errors import UsageError
from antiphon.live.profiler import fitted
from antiphon.live.step_survey import HELD_OUT_POINTS, MOST_REPEATS, StepSurvey, SurveyedStep
from antiphon.live.step_timer import StepTimer
from antiphon.perf import (
    FittedStepTime,
    Limits,
    ProfiledEngine,
    Ramp,
    StepKind,
    StepWork,
    grid,
    held_out,
    work_of,
)
from antiphon.types import PageId, SequenceKey, StepPlan, StepResult

LIMITS = Limits(max_model_len=2048, pages=4096, page_tokens=16)
VOCAB = 50
TRUTH = FittedStepTime(
    fixed_s=8e-3,
    token=Ramp(starts=(0, 16), slopes_s=(1e-4, 5e-4)),
    sampled=Ramp(starts=(0,), slopes_s=(1e-4,)),
    chunk_s=5e-5,
    context_s=1e-6,
    attention_s=1e-8,
)
ENGINE = ProfiledEngine(
    model="known",
    identity="00",
    numerics="none",
    dtype="fp32",
    cores=1,
    page_tokens=16,
    max_model_len=2048,
    machine="none",
)


@dataclass
class KnownEngine:
    """Keeps the rules of a real engine: page tables that are complete, sequences that end."""

    truth: StepTime = TRUTH
    now: float = 0.0
    fails_at: int | None = None
    written: set[PageId] = field(default_factory=set)
    tables: dict[SequenceKey, tuple[PageId, ...]] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)

    def forward(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        if len(self.plans) == self.fails_at:
            raise KeyboardInterrupt
        for key in plan.ended:
            del self.tables[key]
        for copy in plan.copies:
            assert copy.source in self.written
            self.written.add(copy.target)
        used: list[PageId] = []
        for chunk in plan.chunks:
            key = SequenceKey(chunk.request.id, chunk.sequence)
            table = self.tables.get(key, ())[: chunk.page_start] + chunk.new_pages
            assert chunk.page_start <= len(self.tables.get(key, ()))
            end = chunk.start + len(chunk.tokens)
            assert len(table) == -(-end // LIMITS.page_tokens)
            assert chunk.start == 0 or set(table) <= self.written
            assert chunk.request.prompt[chunk.start :] == chunk.tokens
            assert all(0 <= token < VOCAB for token in chunk.tokens)
            self.written |= set(table)
            self.tables[key] = table
            used += table
        assert len(set(used)) == len(used) <= LIMITS.pages
        elapsed_s = self.truth.seconds(plan)
        self.now += elapsed_s
        return StepResult(number=plan.number, elapsed_s=elapsed_s)


def survey(engine: KnownEngine, budget_s: float, seed: int = 0) -> list[SurveyedStep]:
    made = StepSurvey(engine, LIMITS, VOCAB, seed)
    return made.run(budget_s, lambda: engine.now, lambda share: None)


def test_a_known_engine_is_found_out() -> None:
    engine = KnownEngine()
    steps = survey(engine, 1000.0)
    found = fitted(steps, ENGINE, "now", 0.0)
    assert found.held_out.points == HELD_OUT_POINTS
    assert found.held_out.worst < 1e-6
    assert found.step_time.token.starts == TRUTH.token.starts
    assert found.held_out.good
    assert len(steps) == len(grid(LIMITS)) + HELD_OUT_POINTS
    assert all(len(step.times) == MOST_REPEATS for step in steps)
    assert not engine.tables, "the engine still remembers sequences"


def test_held_out_steps_are_not_part_of_the_fit() -> None:
    steps = survey(KnownEngine(), 1000.0)
    before = fitted(steps, ENGINE, "now", 0.0)
    for step in steps:
        if step.held_out:
            step.times = [10 * seconds for seconds in step.times]
    after = fitted(steps, ENGINE, "now", 0.0)
    assert after.step_time == before.step_time
    assert after.held_out.median == pytest.approx(0.9)
    assert not after.held_out.good


@pytest.mark.parametrize("budget_s", [2.0, 5.0, 20.0, 60.0])
def test_the_budget_bounds_the_time_and_thins_all_sizes(budget_s: float) -> None:
    engine = KnownEngine()
    steps = survey(engine, budget_s)
    assert engine.now <= 1.15 * budget_s
    assert engine.now >= 0.8 * budget_s
    assert all(len(step.times) >= 3 for step in steps)
    assert max(TRUTH.seconds_of(step.shape.work) for step in steps) <= budget_s / 40
    found = fitted(steps, ENGINE, "now", 0.0)
    assert found.held_out.points >= 8
    if budget_s >= 20:
        assert {step.shape.kind for step in steps if step.held_out} == set(StepKind)
        assert found.held_out.worst < 0.05


@dataclass
class SlowStart(KnownEngine):
    """Every tenth pass, the first ones among them, waits for something else."""

    def forward(self, plan: StepPlan) -> StepResult:
        result = super().forward(plan)
        if len(self.plans) % 10 != 3:
            return result
        self.now += 1.5
        return replace(result, elapsed_s=result.elapsed_s + 1.5)


def test_one_slow_pass_leaves_nothing_out() -> None:
    steps = survey(SlowStart(), 100.0)
    assert max(step.shape.work.tokens for step in steps) >= 1024
    found = fitted(steps, ENGINE, "now", 0.0)
    assert found.held_out.median < 0.01


@dataclass
class GetsSlow(KnownEngine):
    """From some pass on, everything takes six times as long."""

    slow_from: int = 100

    def forward(self, plan: StepPlan) -> StepResult:
        result = super().forward(plan)
        slower = 6.0 if len(self.plans) > self.slow_from else 1.0
        self.now += (slower - 1) * result.elapsed_s
        return replace(result, elapsed_s=slower * result.elapsed_s)


def test_a_machine_that_gets_slow_does_not_take_for_ever() -> None:
    engine = GetsSlow()
    steps = survey(engine, 30.0)
    assert len(engine.plans) > engine.slow_from
    assert engine.now <= 2 * 30.0
    assert all(step.times for step in steps)


@dataclass
class Warms(KnownEngine):
    """A decode that follows its like takes a tenth less; everything else is as it always is."""

    def forward(self, plan: StepPlan) -> StepResult:
        before = self.plans[-1].chunks if self.plans else ()
        result = super().forward(plan)
        names = [chunk.request.id for chunk in plan.chunks]
        again = names and names == [chunk.request.id for chunk in before]
        if not (again and all(len(chunk.tokens) == 1 for chunk in plan.chunks)):
            return result
        self.now -= 0.1 * result.elapsed_s
        return replace(result, elapsed_s=0.9 * result.elapsed_s)


def test_a_short_decode_is_timed_in_a_run_as_servers_decode() -> None:
    steps = survey(Warms(), 100.0)
    for step in steps:
        decodes = step.shape.kind is StepKind.DECODE
        alone_s = TRUTH.seconds_of(step.shape.work)
        if not decodes:
            assert step.times == [pytest.approx(alone_s)] * len(step.times)
        elif alone_s < 0.02:
            assert step.times == [pytest.approx(0.9 * alone_s)] * len(step.times)


def test_a_budget_that_is_too_short_says_so() -> None:
    engine = KnownEngine()
    with pytest.raises(UsageError, match="raise --budget"):
        survey(engine, 0.1)
    assert engine.now < 1.0


def test_rounds_differ_in_order_and_repeat_with_the_seed() -> None:
    first, again, other = KnownEngine(), KnownEngine(), KnownEngine()
    survey(first, 20.0, seed=1)
    survey(again, 20.0, seed=1)
    survey(other, 20.0, seed=2)

    def order(engine: KnownEngine) -> list[StepWork]:
        return [work_of(plan) for plan in engine.plans]

    assert order(first) == order(again)
    assert order(first) != order(other)
    names = [name for name, _ in groupby(p.chunks[0].request.id for p in first.plans if p.chunks)]
    count = len(set(names)) - 1
    assert names[-count:] != names[-2 * count : -count]


def test_progress_only_grows_and_ends_at_1() -> None:
    engine, shares = KnownEngine(), list[float]()
    StepSurvey(engine, LIMITS, VOCAB, 0).run(30.0, lambda: engine.now, shares.append)
    assert shares == sorted(shares)
    assert shares[0] >= 0
    assert shares[-1] == 1


def test_an_interrupt_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        survey(KnownEngine(fails_at=100), 20.0)


def test_the_timer_runs_each_shape_as_it_was_asked() -> None:
    engine = KnownEngine()
    shapes = [*grid(LIMITS), *held_out(LIMITS, 20, seed=3)]
    timer = StepTimer(engine, LIMITS, VOCAB, shapes)
    for number, shape in enumerate(shapes):
        assert timer.first_pass(number) == TRUTH.seconds_of(shape.work)
        assert timer.time(number) == TRUTH.seconds_of(shape.work)
        first, second = engine.plans[-2:]
        assert work_of(first) == work_of(second) == shape.work
        assert all(chunk.new_pages for chunk in first.chunks)
        assert not any(chunk.new_pages for chunk in second.chunks)
        timer.forget(number)
    assert not engine.tables
