"""A step that begins while its prefix is still on its way: laws, and who breaks them."""

from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_law_controls import broken_law
from test_scheduler_laws import SETTINGS, Workload, alone, run

from antiphon.core.scheduler.early_start import PrefillPace
from antiphon.errors import BugError
from antiphon.sim import ScriptedEngine, ShadowStore, Submit
from antiphon.sim.coming_fetches import ComingFetches
from antiphon.testing import laws
from antiphon.testing.strategies import WorkerSetup, losses, worker_setups, workloads
from antiphon.types import Admitted, Awaited, Fetched, StepPlan, StepResult

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

    @settings(SETTINGS, max_examples=250, derandomize=True, database=None)
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
