"""Runs side by side: what differs, what is noise, and what can't be compared."""

from dataclasses import replace
from math import inf

import pytest
from call_records import RUN, SLO, call, failure, saved, some

from antiphon.core.goodput import difference, share
from antiphon.errors import UsageError
from antiphon.report import Against, Better, Comparison, SavedRun, compare
from antiphon.types import Slo


def verdicts(comparison: Comparison) -> dict[str, Against]:
    return {row.name: row.cells[1].against for row in comparison.rows}


def test_the_same_run_differs_from_itself_in_nothing() -> None:
    comparison = compare([saved(some(1)), saved(some(1), replace(RUN, title="B"))])
    assert comparison.names == ("A", "B")
    assert comparison.warnings == ()
    for row in comparison.rows:
        first, other = row.cells
        assert first.against is Against.FIRST
        assert other.against in (Against.WITHIN_NOISE, Against.UNKNOWN)
        assert other.ratio is None or other.ratio == 1.0
        assert first.text == other.text


def test_equal_servers_seldom_differ() -> None:
    """95 % intervals: of many rows of equal servers, one in twenty may look different."""
    looks = [
        verdict
        for seed in range(12)
        for verdict in verdicts(compare([saved(some(seed)), saved(some(seed + 100))])).values()
        if verdict is not Against.UNKNOWN
    ]
    differing = sum(verdict in (Against.BETTER, Against.WORSE) for verdict in looks)
    assert len(looks) > 150
    assert differing <= 0.05 * len(looks)


def test_a_slower_server_is_worse_and_a_faster_one_better() -> None:
    fast, slow = saved(some(1)), saved(some(2, ttft=0.3, misses=0.1))
    worse, better = verdicts(compare([fast, slow])), verdicts(compare([slow, fast]))
    for name in ("met both targets", "TTFT p50", "TTFT p90", "failed", "goodput/s per device"):
        assert worse[name] is Against.WORSE, name
        assert better[name] is Against.BETTER, name
    assert worse["TPOT p50"] is Against.WITHIN_NOISE
    assert worse["requests/s"] is Against.UNKNOWN


def test_ratios_are_to_the_first_run() -> None:
    first = saved([call(number, ttft=0.2, tokens=1) for number in range(50)])
    second = saved([call(number, ttft=0.3, tokens=1) for number in range(50)])
    row = next(row for row in compare([first, second, first]).rows if row.name == "TTFT p50")
    assert row.better is Better.LOWER
    assert [cell.text for cell in row.cells] == ["200 ms", "300 ms", "200 ms"]
    assert [cell.ratio for cell in row.cells] == [1.0, pytest.approx(1.5), 1.0]
    assert [cell.against_first for cell in row.cells] == [
        "",
        "1.50× worse",
        "1.00× within noise",
    ]


def test_few_calls_can_not_tell_the_99th_percentile() -> None:
    few = [call(number, ttft=0.1 + number / 1000) for number in range(20)]
    many = [replace(one, token_at_s=tuple(at + 1 for at in one.token_at_s)) for one in few]
    slow = [replace(one, ended_at_s=one.ended_at_s + 1) for one in many]
    row = next(row for row in compare([saved(few), saved(slow)]).rows if row.name == "TTFT p99")
    assert row.cells[0].estimate is not None
    assert row.cells[0].estimate.high == inf


def test_a_percentile_that_has_no_upper_bound_is_not_called_noise() -> None:
    few = [call(number, ttft=0.1 + number / 1000) for number in range(20)]
    looks = verdicts(compare([saved(few), saved(few)]))
    assert looks["TTFT p99"] is Against.TOO_FEW
    assert looks["TTFT p50"] is Against.WITHIN_NOISE
    assert verdicts(compare([saved(few), saved(some(1))]))["TTFT p99"] is Against.TOO_FEW
    many = verdicts(compare([saved(some(1)), saved(some(1))]))
    assert Against.TOO_FEW not in many.values()


RATE_ROWS = ("goodput/s per device", "requests/s", "output tokens/s", "prompt tokens/s")


def test_what_follows_from_the_offered_rate_is_not_judged_at_different_ones() -> None:
    faster = saved(some(1, ttft=0.3), replace(RUN, title="B", rate_per_s=9.0))
    comparison = compare([saved(some(1)), faster])
    assert comparison.headline.endswith("against A: B offered rates differ.")
    for row in comparison.rows:
        cell = row.cells[1]
        assert (cell.against is Against.OTHER_RATE) == (row.name in RATE_ROWS)
        assert row.name not in RATE_ROWS or cell.ratio is None
    assert verdicts(comparison)["TTFT p50"] is Against.WORSE


def test_traces_at_their_own_times_are_judged_by_the_rate_at_which_they_came() -> None:
    trace = replace(RUN, rate_per_s=None)
    same = verdicts(compare([saved(some(1), trace), saved(some(1), trace)]))
    half = verdicts(compare([saved(some(1), trace), saved(some(1)[::2], trace)]))
    assert same[RATE_ROWS[0]] is Against.WITHIN_NOISE
    assert half[RATE_ROWS[0]] is Against.OTHER_RATE


def test_runs_without_judged_calls_have_no_verdict() -> None:
    for runs in ([saved([]), saved(some(1))], [saved(some(1)), saved([])]):
        comparison = compare(runs)
        assert set(verdicts(comparison).values()) == {Against.UNKNOWN}
        assert all(row.cells[1].ratio is None for row in comparison.rows)


def test_gaps_of_one_call_are_not_taken_for_independent() -> None:
    """Two runs of three calls with hundreds of gaps each say little about the gaps."""
    first = [call(number, tpot=0.01 + number / 1000, tokens=300) for number in range(3)]
    second = [call(number, tpot=0.0105 + number / 1000, tokens=300) for number in range(3)]
    assert verdicts(compare([saved(first), saved(second)]))["ITL p50"] is Against.WITHIN_NOISE


def test_calls_that_wait_together_are_not_taken_for_independent() -> None:
    """Half of all calls come in one slow stretch, in the one run a little longer than in the other:
    were they independent, that would be a difference. The calls come in the order of their ends."""

    def run(slow: int) -> SavedRun:
        ttfts = [2.0 if number < slow else 0.1 for number in range(400)]
        records = [call(number, due=number / 4, ttft=ttft) for number, ttft in enumerate(ttfts)]
        return saved(sorted(records, key=lambda record: record.ended_at_s))

    same = verdicts(compare([run(190), run(230)]))
    assert same["TTFT p50"] is same["met both targets"] is Against.WITHIN_NOISE
    assert difference(share(190, 400), share(230, 400)).excludes(0.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rate_per_s": 3.0}, "rate_per_s"),
        ({"workload": "code"}, "workload"),
        ({"slos": (("", Slo(ttft_s=1.0, tpot_s=1.0)),), "model": "other"}, "model, slos"),
        ({"seed": 5}, "seed"),
    ],
)
def test_what_else_differs_is_named(change: dict, named: str) -> None:
    comparison = compare([saved(some(1)), saved(some(1), replace(RUN, **change))])
    assert f"differ in more than the server: {named}." in comparison.warnings[0]


def test_doubts_about_a_run_are_repeated() -> None:
    late = replace(RUN, title="B", notes=("The client fell behind.",))
    broken = replace(saved(some(1), late), whole=False)
    assert compare([saved(some(1)), broken]).warnings == (
        "B: was interrupted.",
        "B: The client fell behind.",
    )


def test_runs_of_one_name_are_told_apart() -> None:
    one, other = saved(some(1), folder="x/a"), saved(some(1), folder="x/b")
    assert compare([one, other]).names == ("A (a)", "A (b)")
    assert compare([one, one]).names == ("1: A (a)", "2: A (a)")


@pytest.mark.parametrize("runs", [[], [saved([])]])
def test_one_run_is_not_enough(runs: list[SavedRun]) -> None:
    with pytest.raises(UsageError, match="needs at least two runs"):
        compare(runs)


def test_runs_without_calls_can_be_compared() -> None:
    comparison = compare([saved([]), saved([failure(0)]), saved(some(1))])
    assert "TTFT p50" in [row.name for row in comparison.rows]
    assert all(len(row.cells) == 3 for row in comparison.rows)
    assert comparison.headline.endswith("A (a) –.")


def test_the_headline_is_about_goodput() -> None:
    slow = saved(some(2, ttft=0.3, misses=0.1), replace(RUN, title="B"))
    headline = compare([saved(some(1)), slow]).headline
    assert headline.startswith("Calls within targets, per second and device, against A: B 0.")
    assert headline.endswith("× worse.")


def test_sessions_are_compared_where_there_are_any() -> None:
    chats = [call(number, session=number // 2, turn=number % 2) for number in range(40)]
    names = [row.name for row in compare([saved(chats), saved(chats)]).rows]
    assert "sessions met all" in names
    assert "sessions met all" not in [
        row.name for row in compare([saved(some(1)), saved(some(2))]).rows
    ]
    assert SLO in dict(RUN.slos).values()
