"""A step that begins while its prefix is still on its way: examples, laws, and who breaks them.

Pages of 2 tokens, blocks of 4, as in `test_fetches`.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fetch_bench import LEASE, FetchBench, filled
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scheduler_bench import SETUP, ends, request, tokens
from test_law_controls import broken_law
from test_scheduler_laws import SETTINGS, Workload, alone, run

from antiphon.core.scheduler import Parts
from antiphon.core.scheduler.early_start import PrefillPace
from antiphon.core.scheduler.receiving import Receiving
from antiphon.errors import BugError
from antiphon.sim import ScriptedEngine, ShadowStore, Submit
from antiphon.sim.coming_fetches import ComingFetches
from antiphon.testing import laws
from antiphon.testing.strategies import WorkerSetup, losses, worker_setups, workloads
from antiphon.types import (
    Aborted,
    Admitted,
    Awaited,
    Fetch,
    Fetched,
    FinishReason,
    Prefilled,
    RequestId,
    Started,
    StepPlan,
    StepResult,
    TokenGenerated,
)

PROMPT = tuple(range(1, 14))
"""Three blocks and a token."""
LONG = (*PROMPT[:12], *range(1, 11))
"""The same three blocks and ten tokens."""
R = RequestId("r")
GROUPS = 10
LARGE = replace(SETUP, max_model_len=64)


class EarlyBench(FetchBench):
    """A bench whose steps take a millisecond a token, after one of ten tokens."""

    def __init__(self, store: ShadowStore, setup: WorkerSetup = LARGE) -> None:
        super().__init__(store, setup)
        self.add(request("first", prompt=(7,) * 10, max_tokens=1), 0)
        self._end(self.scheduler.step(0.0), 0.01)

    def _end(self, plan: StepPlan | None, elapsed_s: float) -> list:
        assert plan is not None
        result = replace(self.engine.forward(plan), elapsed_s=elapsed_s)
        return list(self.scheduler.complete(plan, result, 0.0))

    def fetch(self, prompt: Sequence[int] = LONG, **how) -> Fetch:
        self.add(request(prompt=tuple(prompt), **how.pop("asked", {})), 12, **how)
        return self.begin()

    def arriving(self, here: int = 8, group_s: float = 0.003) -> None:
        self.scheduler.arriving(R, 1, here, GROUPS, group_s)

    def early(self) -> StepPlan:
        self.arriving()
        plan = self.scheduler.step(0.0)
        assert plan is not None and plan.awaits is not None
        assert self.scheduler.expire(0.0) == [started()], "before the pass that could kill it"
        return plan

    def broken_off(self, plan: StepPlan) -> list:
        self.side.spoil(plan)
        result = StepResult(number=plan.number, broken_off=True)
        return list(self.scheduler.complete(plan, result, 0.0))


def started(cached: int = 12, stored: int = 12) -> Started:
    return Started(request=R, attempt=1, cached_tokens=cached, stored_tokens=stored, queued_s=0.0)


def fetched(count: int = 12, missing: int = 0, problem: str = "") -> Fetched:
    return Fetched(
        request=R, attempt=1, fetched_tokens=count, missing_tokens=missing, problem=problem
    )


# ── by example ───────────────────────────────────────────────────────────────────────────────────


def test_a_step_begins_before_the_last_layers_and_counts_when_all_was_proven() -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    assert bench.scheduler.step(0.0) is None, "nobody knows how far it is"
    plan = bench.early()
    (chunk,) = plan.chunks
    assert (chunk.start, chunk.tokens, chunk.samples) == (12, LONG[12:], (0,))
    assert (plan.awaits.request, plan.awaits.attempt) == (R, 1)
    assert bench.end(fetch) == [], "what came of it is said when the step is over"
    events = bench.complete(plan)
    assert events[0] == fetched() and tokens(events) == [(0, 9)]
    assert ends(bench.finish()) == [(0, FinishReason.LENGTH)]
    view = bench.scheduler.view(0.0)
    assert (view.held_pages, view.fetched_tokens_total) == (0, 12)


@pytest.mark.parametrize(("lost", "count"), [({0}, 0), ({2}, 8)])
def test_if_a_block_is_bad_nothing_of_the_step_counts(lost: set[int], count: int) -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    plan = bench.early()
    assert bench.end(fetch, lost) == []
    events = bench.broken_off(plan)
    assert events == [fetched(count, 12 - count, "lost")]
    again, events = bench.turn()
    assert (again.awaits, again.chunks[0].start, again.chunks[0].page_start) == (None, count, 0)
    events += bench.finish()
    assert not [one for one in events if isinstance(one, Started)]
    assert tokens(events) == [(index, 9) for index in range(4)]


def test_a_result_over_bad_blocks_is_dropped_whatever_the_engine_says() -> None:
    """The scheduler trusts no engine to have waited."""
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    plan = bench.early()
    bench.end(fetch, {1})
    said = StepResult(
        number=plan.number, samples=ScriptedEngine(lambda *_: 5).forward(plan).samples
    )
    assert bench.scheduler.complete(plan, said, 0.0) == [fetched(4, 8, "lost")]
    assert tokens(bench.finish()) == [(index, 9) for index in range(4)]


def test_if_the_layers_come_too_late_the_request_is_on_its_way_as_before() -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    assert bench.broken_off(bench.early()) == []
    view = bench.scheduler.view(0.0)
    assert (view.pulling, view.running, view.held_pages) == (1, 0, 11)
    bench.arriving(9)
    assert bench.scheduler.step(0.0) is None, "each is tried once"
    assert bench.end(fetch) == [fetched()], "that it starts was said"
    plan, events = bench.turn()
    assert (plan.chunks[0].start, plan.chunks[0].page_start) == (12, 0)
    assert tokens(events) == [(0, 9)]


def test_whoever_runs_has_the_device() -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    bench.add(request("other", prompt=(7, 7, 7)), 0)
    bench.arriving()
    plan, _ = bench.turn()
    assert plan.awaits is None and [one.request.id for one in plan.chunks] == ["other"]
    bench.end(fetch)
    bench.finish()


def test_who_comes_while_it_waits_is_served_next() -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    plan = bench.early()
    bench.add(request("other", prompt=(7, 7, 7)), 0)
    bench.broken_off(plan)
    plan, _ = bench.turn()
    assert [one.request.id for one in plan.chunks] == ["other"]
    bench.end(fetch)
    bench.finish()


@pytest.mark.parametrize(
    ("here", "group_s"), [(0, 0.003), (10, 0.003), (8, 0.001), (1, 0.003), (8, 1.0)]
)
def test_it_does_not_begin_too_early_nor_for_nothing(here: int, group_s: float) -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    bench.arriving(here, group_s)
    assert bench.scheduler.step(0.0) is None
    assert bench.end(fetch) == [fetched(), started()]


def test_steps_of_several_sequences_tell_nothing_of_the_pace() -> None:
    """Eight decodes take far longer than eight tokens of one sequence."""
    bench = EarlyBench(filled(PROMPT))
    for name, token in (("one", 5), ("other", 6)):
        bench.add(request(name, prompt=(token,) * 5, max_tokens=1), 0)
    plan = bench.scheduler.step(0.0)
    assert plan is not None and [len(one.tokens) for one in plan.chunks] == [5, 5]
    bench._end(plan, 10.0)
    bench.fetch()
    bench.arriving(here=1)
    assert bench.scheduler.step(0.0) is None, "by the pace of such as it is one of"


def test_several_sequences_wait_for_all_of_it() -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch(asked={"n": 2})
    bench.arriving()
    assert bench.scheduler.step(0.0) is None
    bench.end(fetch)
    assert len(ends(bench.finish())) == 2


def test_a_prompt_that_is_computed_for_others_may_begin_early_too() -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch(lease=LEASE)
    plan = bench.early()
    bench.end(fetch)
    (offer,) = (one for one in bench.complete(plan) if isinstance(one, Prefilled))
    assert offer.sequences[0].table[:6] == sum(fetch.targets, ())
    bench.scheduler.abort(R, 0.0)
    assert bench.scheduler.view(0.0).held_pages == 0


def test_a_chunk_that_ends_before_the_prompt_does_goes_on_in_the_next_step() -> None:
    """16 tokens fit into a step; the blocks that are complete get their names then."""
    bench = EarlyBench(filled(PROMPT))
    long = (*PROMPT[:12], *range(1, 11), *range(1, 11))
    fetch = bench.fetch(long)
    plan = bench.early()
    assert (len(plan.chunks[0].tokens), plan.chunks[0].samples) == (16, ())
    bench.end(fetch)
    assert bench.complete(plan) == [fetched()]
    assert len(bench.scheduler.named_blocks()) == 2 + 7, "two of the first request"
    plan, events = bench.turn()
    assert (plan.chunks[0].start, plan.chunks[0].page_start) == (28, 16)
    assert tokens(events) == [(0, 9)]


# ── ends in the middle ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("comes", ["before", "after"])
def test_an_abort_keeps_the_pages_until_step_and_fetch_are_over(comes: str) -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    plan = bench.early()
    assert bench.scheduler.abort(R, 0.0) == Aborted(request=R, sequences=(0,))
    if comes == "before":
        assert bench.end(fetch) == []
        assert bench.scheduler.view(0.0).held_pages == 11
        assert bench.complete(plan) == []
    else:
        assert bench.broken_off(plan) == []
        assert bench.scheduler.view(0.0).held_pages == 11
        assert bench.end(fetch) == []
    assert bench.scheduler.view(0.0).held_pages == 0
    bench.add(request(prompt=PROMPT))
    bench.finish()


@pytest.mark.parametrize("comes", ["before", "after"])
def test_an_engine_that_fails_in_such_a_step_ends_the_request(comes: str) -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    plan = bench.early()
    if comes == "before":
        bench.end(fetch)
    events = list(bench.scheduler.fail(plan, "broken", 0.0))
    assert ends(events) == [(0, FinishReason.ERROR)]
    if comes == "after":
        assert bench.scheduler.view(0.0).held_pages == 11, "something still comes into them"
        assert bench.end(fetch) == []
    assert bench.scheduler.view(0.0).held_pages == 0
    assert len(bench.scheduler.named_blocks()) == 2, "nothing of it is found again"


def test_what_breaks_a_promise_is_a_bug() -> None:
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    plan = bench.early()
    answer = ScriptedEngine(lambda *_: 9).forward(plan)
    with pytest.raises(BugError, match="a step has read KV of r that is still on its way"):
        bench.scheduler.complete(plan, answer, 0.0)
    bench = EarlyBench(filled(PROMPT))
    fetch = bench.fetch()
    plan = bench.early()
    bench.end(fetch)
    with pytest.raises(BugError, match="ends but is not under way"):
        bench.end(fetch)
    bench = EarlyBench(filled(PROMPT))
    bench.add(request(prompt=(7, 7)), 0)
    plan = bench.scheduler.step(0.0)
    assert plan is not None
    with pytest.raises(BugError, match="broken off, but awaits nothing"):
        bench.scheduler.complete(plan, StepResult(number=plan.number, broken_off=True), 0.0)


def test_how_far_a_fetch_is_that_has_ended_may_be_said() -> None:
    bench = EarlyBench(filled(PROMPT))
    bench.end(bench.fetch())
    bench.arriving()
    bench.finish()
    bench.arriving()


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────

delays = st.lists(st.sampled_from([0.0, 0.01, 0.2]), min_size=2, max_size=8)


def check_early(
    setup: WorkerSetup,
    workload: Workload,
    lost: Sequence[frozenset[int]],
    late: Sequence[float],
    seen: set[str] | None = None,
) -> None:
    """All laws of a run, and I9: a token is what its definition says, or there is none.

    Steps are believed to take long, so they begin as early as they can, and many too early.
    """
    store = ShadowStore()
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrefillPace, "seconds", lambda pace, tokens: 0.05)
            log = run(setup, workload, store=store, lost=lost, late=late, groups=8)
        for item in workload:
            if isinstance(item, Submit) and isinstance(log.of(item.request.id)[0], Admitted):
                for sequence, said in laws.tokens_of(log, item.request).items():
                    assert said == alone(setup, item.request, sequence)[: len(said)]
        if seen is None:
            continue
        for _, plan in log.plans:
            if plan.awaits is None:
                continue
            said = log.of(plan.awaits.request)
            end = next((one for one in said if isinstance(one, Fetched)), None)
            seen.update(["aborted"] if end is None else ["lost"] * (end.missing_tokens > 0))
            chunks = (chunk for _, one in log.plans for chunk in one.chunks)
            starts = [one.start for one in chunks if one.request.id == plan.awaits.request]
            if end is not None and not end.missing_tokens:
                seen.add("late" if starts.count(starts[0]) > 1 else "used")


@SETTINGS
@given(worker_setups(), workloads(fetching=True), losses(), delays)
def test_all_laws_hold_where_steps_begin_before_their_kv_is_here(
    setup: WorkerSetup, workload: Workload, lost: list[frozenset[int]], late: list[float]
) -> None:
    check_early(setup, workload, lost, late)


@pytest.mark.no_cover
def test_the_workloads_reach_what_comes_of_such_steps() -> None:
    seen: set[str] = set()

    @settings(SETTINGS, max_examples=100, derandomize=True, database=None)
    @given(worker_setups(), workloads(fetching=True), losses(), delays)
    def look(setup: WorkerSetup, workload: Workload, lost, late) -> None:
        check_early(setup, workload, lost, late, seen)

    look()
    assert seen == {"used", "lost", "late", "aborted"}


# ── controls ─────────────────────────────────────────────────────────────────────────────────────


class WaitsForNothing(ComingFetches):
    """A driver that computes with what is there, and says that all was."""

    def step_ends_at(self, awaits: Awaited, now: float, step_s: float) -> float:
        return now + step_s

    def result(self, plan: StepPlan, awaits: Awaited, engine: ScriptedEngine, now) -> StepResult:
        return engine.forward(plan)


class TakesUnproven(Receiving):
    """Uses what a step has computed, whatever came of the KV that it has read."""

    def end_early(self, awaits, result, now):
        _, events = super().end_early(awaits, result, now)
        return result is not None, events


class Unchecked(ComingFetches):
    """An engine that computes with whatever has come, and does not look."""

    def result(self, plan: StepPlan, awaits: Awaited, engine: ScriptedEngine, now) -> StepResult:
        return engine.forward(plan)


def finds(law: str) -> None:
    @settings(SETTINGS, max_examples=4000, derandomize=True, database=None, phases=[Phase.generate])
    @given(worker_setups(), workloads(fetching=True), losses())
    def search(setup: WorkerSetup, workload: Workload, lost) -> None:
        try:
            check_early(setup, workload, lost, ())
        except BugError as error:
            assert broken_law(error) != law, f"{law} is broken"

    with pytest.raises(AssertionError, match=f"^{law} is broken"):
        search()


@pytest.mark.parametrize("wrong", [WaitsForNothing, Unchecked])
@pytest.mark.no_cover
def test_i5_finds_a_step_that_reads_what_has_not_come(
    wrong: type[ComingFetches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.sim.virtual_worker.ComingFetches", wrong)
    finds("I5")


def test_a_scheduler_that_takes_unproven_results_is_found() -> None:
    """Its engine delivers wrong tokens over bad blocks; the true scheduler drops them."""
    for parts, said in ((Parts(), 9), (Parts(receiving=TakesUnproven), 5)):
        bench = EarlyBench(filled(PROMPT), replace(LARGE, parts=parts))
        fetch = bench.fetch()
        plan = bench.early()
        bench.end(fetch, {1})
        wrong = ScriptedEngine(lambda *_: 5).forward(plan)
        events = list(bench.scheduler.complete(plan, wrong, 0.0))
        if said == 9:
            events += bench.finish()
        first = next(one for one in events if isinstance(one, TokenGenerated))
        assert first.token == said
