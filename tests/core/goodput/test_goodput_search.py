"""The search for goodput: it finds the knee, and it always ends."""

import random
from dataclasses import replace

import pytest
from goodput_kit import Server, cliff, counted, logistic, queue, queue_knee, searched
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import (
    Attainment,
    Goodput,
    GoodputSearch,
    RunAt,
    SearchRules,
    StopReason,
)
from antiphon.errors import BugError, UsageError

SEEDS = 200
QUEUE_SEEDS = 60
"""Each of them serves tens of thousands of calls one by one, which takes long when measured."""


def found_by(rules: SearchRules, server: Server, seeds: int = SEEDS) -> list[Goodput]:
    """The results of all seeds."""
    found = [searched(GoodputSearch(rules), server, seed)[0] for seed in range(seeds)]
    assert {goodput.stopped for goodput in found} == {StopReason.FOUND}
    return found


def errors_of(found: list[Goodput], knee: float) -> list[float]:
    """How far off each result is, relatively; smallest first."""
    return sorted(goodput.rate_per_s / knee - 1 for goodput in found)


def times_contained(found: list[Goodput], knee: float) -> int:
    """How many results have the knee between their bounds."""
    return sum(not goodput.estimate.excludes(knee) for goodput in found)


@pytest.mark.parametrize("width", [0.02, 0.05, 0.15])
def test_finds_the_knee_of_noisy_calls_within_5_percent_in_runs_of_a_minute(width: float) -> None:
    found = found_by(SearchRules(), logistic(13.0, width, 0.9))
    errors = errors_of(found, 13.0)
    assert -0.05 <= errors[0] <= errors[-1] <= 0.05
    assert times_contained(found, 13.0) >= 0.97 * SEEDS


def test_with_too_few_calls_it_would_not() -> None:
    # The control of the two tests beside it: their bounds can be missed.
    rules = SearchRules(run_s=4.0, longest_run_s=4.0, least_calls=20, runs_per_rate=1)
    errors = errors_of(found_by(rules, logistic(13.0, 0.15, 0.9)), 13.0)
    assert errors[0] < -0.05
    assert errors[-1] > 0.05


@pytest.mark.no_cover
@pytest.mark.parametrize(("wait", "run_s"), [(6.0, 8000.0), (10.0, 4000.0)])
def test_finds_the_knee_of_a_queue_within_5_percent(wait: float, run_s: float) -> None:
    # Service takes a second. Calls of one queue wait together, so it takes more of them to be sure.
    rules = SearchRules(start_per_s=0.2, run_s=run_s, longest_run_s=run_s)
    found, knee = found_by(rules, queue(wait), QUEUE_SEEDS), queue_knee(wait, 0.9)
    errors = errors_of(found, knee)
    assert -0.05 <= errors[0] <= errors[-1] <= 0.05
    assert abs(sum(errors)) / QUEUE_SEEDS < 0.02
    assert times_contained(found, knee) >= 0.93 * QUEUE_SEEDS


@pytest.mark.no_cover
@pytest.mark.parametrize(("run_s", "within", "contained"), [(150, 0.15, 0.35), (500, 0.08, 0.7)])
def test_with_few_calls_it_is_as_sure_as_the_page_on_goodput_says(
    run_s: float, within: float, contained: float
) -> None:
    rules = SearchRules(start_per_s=0.2, run_s=run_s, longest_run_s=run_s)
    found, knee = found_by(rules, queue(6.0, warmup_s=20.0)), queue_knee(6.0, 0.9)
    off = sorted(map(abs, errors_of(found, knee)))
    assert off[round(0.9 * SEEDS)] <= within
    assert times_contained(found, knee) >= contained * SEEDS


@pytest.mark.parametrize("goal", [0.5, 0.9, 0.99])
def test_any_share_can_be_the_goal(goal: float) -> None:
    server = logistic(40.0, 0.05, goal)
    found, _runs = searched(GoodputSearch(SearchRules(goal=goal)), server)
    assert found.rate_per_s == pytest.approx(40.0, rel=0.05)


@given(st.floats(0.05, 500.0), st.floats(0.05, 500.0), st.floats(0.005, 0.5))
@settings(deadline=None, max_examples=200)
def test_without_noise_the_knee_is_in_the_bracket(
    knee: float, start: float, tolerance: float
) -> None:
    rules = SearchRules(start_per_s=start, highest_per_s=1000.0, tolerance=tolerance)
    found, runs = searched(GoodputSearch(rules), cliff(knee))
    assert found.stopped is StopReason.FOUND
    assert found.fails_at_per_s is not None
    assert found.rate_per_s <= knee < found.fails_at_per_s
    assert found.fails_at_per_s <= found.rate_per_s * (1 + tolerance)
    assert len(runs) == sum(probe.runs for probe in found.probes) <= rules.most_runs


@given(st.floats(0.5, 2.0), st.floats(1.01, 2.0))
@settings(deadline=None, max_examples=100)
def test_small_first_steps_find_the_same_knee_where_it_is_near_or_not(
    off: float, growth: float
) -> None:
    near = SearchRules(start_per_s=10.0, growth=growth, runs_per_rate=1)
    for knee in (10.0 * off, 300.0 * off, 0.3 * off):
        found, _runs = searched(GoodputSearch(near), cliff(knee))
        assert found.stopped is StopReason.FOUND
        assert found.fails_at_per_s is not None
        assert found.rate_per_s <= knee < found.fails_at_per_s


def test_near_the_knee_small_first_steps_take_half_the_runs() -> None:
    runs: dict[float, int] = {}
    for growth in (2.0, 1.1):
        rules = SearchRules(start_per_s=10.0, growth=growth, tolerance=0.05, runs_per_rate=1)
        runs[growth] = sum(
            len(searched(GoodputSearch(rules), cliff(knee))[1]) for knee in (9.4, 10.3, 10.8)
        )
    assert 2 * runs[1.1] <= runs[2.0]


@st.composite
def rules_of_any_kind(draw: st.DrawFn) -> SearchRules:
    lowest = draw(st.floats(0.01, 10.0))
    highest = lowest * draw(st.floats(1.0, 1000.0))
    run_s = draw(st.floats(1.0, 100.0))
    return SearchRules(
        goal=draw(st.floats(0.05, 0.99)),
        tolerance=draw(st.floats(0.005, 1.0)),
        growth=draw(st.floats(1.0, 2.0, exclude_min=True)),
        lowest_per_s=lowest,
        start_per_s=min(highest, lowest * draw(st.floats(1.0, 1000.0))),
        highest_per_s=highest,
        run_s=run_s,
        longest_run_s=run_s * draw(st.floats(1.0, 10.0)),
        least_calls=draw(st.integers(1, 200)),
        runs_per_rate=draw(st.integers(1, 5)),
        most_runs=draw(st.integers(1, 60)),
        z=draw(st.floats(0.5, 5.0)),
    )


@given(rules_of_any_kind(), st.integers(0, 2**32), st.sampled_from([1, 20, 500]))
@settings(deadline=None, max_examples=200)
def test_ends_within_its_runs_and_bounds_whatever_it_is_told(
    rules: SearchRules, seed: int, most_calls: int
) -> None:
    def any_server(chance: random.Random, rate: float, duration_s: float) -> Attainment:
        assert rules.lowest_per_s <= rate <= rules.highest_per_s
        assert rules.run_s <= duration_s <= rules.longest_run_s
        of = chance.randint(1, most_calls)
        return counted(chance.randint(0, of), of)

    found, runs = searched(GoodputSearch(rules), any_server, seed)
    assert len(runs) <= rules.most_runs
    assert all(probe.runs <= rules.runs_per_rate for probe in found.probes)
    assert_consistent(found)
    if found.stopped is StopReason.FOUND:
        assert found.fails_at_per_s is not None
        assert 0 < found.fails_at_per_s <= found.rate_per_s * (1 + rules.tolerance)


def assert_consistent(found: Goodput) -> None:
    """Rates in order, the curve falls, and the result is where it crosses the goal."""
    rates = [probe.rate_per_s for probe in found.probes]
    assert rates == sorted(set(rates))
    fitted = [probe.fitted for probe in found.probes]
    assert fitted == sorted(fitted, reverse=True)
    assert found.rate_per_s == max((p.rate_per_s for p in found.probes if p.passes), default=0.0)
    failing = [probe.rate_per_s for probe in found.probes if not probe.passes]
    assert found.fails_at_per_s == min(failing, default=None)
    if found.fails_at_per_s is not None:
        assert found.rate_per_s < found.fails_at_per_s
    assert not found.estimate.excludes(found.per_device)


def test_a_server_that_never_meets_them_has_a_goodput_of_0_and_a_reason() -> None:
    rules = SearchRules(lowest_per_s=0.3)
    found, runs = searched(GoodputSearch(rules), cliff(0.1))
    assert (found.rate_per_s, found.per_device) == (0.0, 0.0)
    assert found.stopped is StopReason.ALL_FAIL
    assert found.fails_at_per_s == 0.3
    assert {run.rate_per_s for run in runs} == {1.0, 0.5, 0.3}


def test_a_server_faster_than_the_search_may_go_is_said_to_be_so() -> None:
    found, runs = searched(GoodputSearch(SearchRules(highest_per_s=5.0)), cliff(1e9))
    assert found.rate_per_s == 5.0
    assert found.stopped is StopReason.ALL_PASS
    assert found.fails_at_per_s is None
    assert max(run.rate_per_s for run in runs) == 5.0


def test_goodput_is_per_device() -> None:
    found, _runs = searched(GoodputSearch(SearchRules(devices=4)), cliff(10.0))
    assert found.per_device == found.rate_per_s / 4


def test_a_rate_that_is_clear_is_measured_once_on_the_way() -> None:
    _found, runs = searched(GoodputSearch(SearchRules()), cliff(100.0))
    assert [run.rate_per_s for run in runs[:4]] == [1.0, 2.0, 4.0, 8.0]


def test_a_rate_near_the_goal_gets_all_its_runs_and_then_the_point_decides() -> None:
    search = GoodputSearch(SearchRules(runs_per_rate=3))
    for met in (89, 91):
        search.observe(1.0, counted(met, 100))
        assert search.next() == RunAt(1.0, 100.0)
    search.observe(1.0, counted(90, 100))
    assert search.next() == RunAt(2.0, 60.0)
    assert search.result().rate_per_s == 1.0


def test_a_run_is_longer_where_calls_are_rare_but_not_for_ever() -> None:
    rules = SearchRules(start_per_s=0.5, run_s=60.0, least_calls=100, longest_run_s=300.0)
    assert GoodputSearch(rules).next() == RunAt(0.5, 200.0)
    assert GoodputSearch(replace(rules, start_per_s=0.1)).next() == RunAt(0.1, 300.0)


def test_an_end_that_fails_when_seen_again_moves_the_bracket_back() -> None:
    search = GoodputSearch(SearchRules(tolerance=0.1))
    search.observe(1.0, counted(1000, 1000))
    search.observe(2.0, counted(1000, 1000))
    search.observe(2.18, counted(0, 1000))
    assert search.next() == RunAt(2.18, 60.0)
    search.observe(2.18, counted(0, 1000))
    assert search.next() == RunAt(2.0, 60.0)
    search.observe(2.0, counted(0, 1000))
    assert (search.result().rate_per_s, search.result().fails_at_per_s) == (1.0, 2.0)
    assert isinstance(step := search.next(), RunAt)
    assert step.rate_per_s == 1.414


def test_rates_in_the_wrong_order_are_taken_together() -> None:
    search = GoodputSearch(SearchRules(runs_per_rate=1))
    search.observe(1.0, counted(990, 1000))
    search.observe(2.0, counted(880, 1000))
    search.observe(2.1, counted(910, 1000))
    search.observe(4.0, counted(100, 1000))
    found = search.result()
    assert [probe.fitted for probe in found.probes] == [0.99, 0.895, 0.895, 0.1]
    assert (found.rate_per_s, found.fails_at_per_s) == (1.0, 2.0)


def test_a_run_without_calls_ends_it_with_that_reason() -> None:
    search = GoodputSearch(SearchRules())
    search.observe(1.0, counted(200, 200))
    search.observe(2.0, counted(0, 0))
    found = search.next()
    assert isinstance(found, Goodput)
    assert (found.stopped, found.rate_per_s) == (StopReason.NO_CALLS, 1.0)


def test_out_of_runs_it_says_what_it_knows() -> None:
    found, runs = searched(GoodputSearch(SearchRules(most_runs=3)), cliff(3.0))
    assert len(runs) == 3
    assert found.stopped is StopReason.OUT_OF_RUNS
    assert (found.rate_per_s, found.fails_at_per_s) == (2.0, 4.0)


def test_a_second_look_is_a_run_like_others() -> None:
    search = GoodputSearch(SearchRules(lowest_per_s=1.0, most_runs=1))
    search.observe(1.0, counted(0, 1000))
    assert search.result().stopped is StopReason.OUT_OF_RUNS


def test_the_last_run_that_was_allowed_may_be_the_one_that_was_needed() -> None:
    _found, runs = searched(GoodputSearch(SearchRules()), cliff(3.0))
    found, _runs = searched(GoodputSearch(SearchRules(most_runs=len(runs))), cliff(3.0))
    assert found.stopped is StopReason.FOUND


def test_broken_off_it_has_what_was_found_by_then() -> None:
    search = GoodputSearch(SearchRules())
    nothing = search.result()
    assert (nothing.rate_per_s, nothing.probes) == (0.0, ())
    assert nothing.stopped is StopReason.UNFINISHED
    search.observe(1.0, counted(200, 200))
    assert (search.result().rate_per_s, search.result().stopped) == (1.0, StopReason.UNFINISHED)


def test_goes_on_from_what_an_earlier_search_measured() -> None:
    earlier, _runs = searched(GoodputSearch(SearchRules()), cliff(11.0))
    search = GoodputSearch(SearchRules())
    for probe in earlier.probes:
        for _ in range(probe.runs):
            half = probe.attainment.calls // probe.runs
            search.observe(probe.rate_per_s, counted(half if probe.passes else 0, half))
    again = search.next()
    assert isinstance(again, Goodput)
    assert again.rate_per_s == earlier.rate_per_s


def test_rates_can_be_read() -> None:
    _found, runs = searched(GoodputSearch(SearchRules(tolerance=0.005)), cliff(7.77))
    assert all(len(f"{run.rate_per_s:g}") <= 5 for run in runs)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("goal", 0.0),
        ("goal", 1.0),
        ("goal", float("nan")),
        ("tolerance", 0.001),
        ("growth", 1.0),
        ("growth", 3.0),
        ("start_per_s", 0.0),
        ("start_per_s", 1e9),
        ("start_per_s", float("nan")),
        ("lowest_per_s", 0.0),
        ("run_s", -1.0),
        ("run_s", float("inf")),
        ("longest_run_s", 1.0),
        ("least_calls", 0),
        ("runs_per_rate", 0),
        ("most_runs", 0),
        ("devices", 0),
        ("z", 0.0),
    ],
)
def test_rules_that_make_no_sense_are_named(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field):
        replace(SearchRules(), **{field: value})


def test_a_run_outside_the_bounds_is_a_bug() -> None:
    with pytest.raises(BugError, match="outside"):
        GoodputSearch(SearchRules(highest_per_s=8.0)).observe(16.0, counted(1, 1))
