"""Attainment against the tightness of the targets, from calls that were made once."""

import math

import pytest
from goodput_kit import call, calls, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import (
    Attainment,
    RunAt,
    ScaleRules,
    Slos,
    SloScale,
    SloScaleSearch,
    scale_curve,
    scaled_all,
    tightest_scale,
)
from antiphon.errors import UsageError
from antiphon.types import CallError, CallRecord, Slo

CHAT: Slos = (("", Slo(ttft_s=1.0, tpot_s=1.0)),)
EVEN = [call(due=place, ttft=(1 + 37 * place % 100) / 100, gaps=[]) for place in range(100)]
"""They need the scales 0.01, 0.02 … 1.00, in no order."""


def test_the_curve_is_the_attainment_at_each_scale() -> None:
    curve = scale_curve(EVEN, CHAT, [2.0, 0.25, 0.5])
    assert [(point.scale, point.attainment.met) for point in curve] == [
        (0.25, 25),
        (0.5, 50),
        (2.0, 100),
    ]


def test_the_tightest_scale_is_exact_and_has_an_interval() -> None:
    some = tightest_scale(EVEN, CHAT)
    assert some.value == pytest.approx(0.9)
    assert 0.8 < some.low < 0.9 < some.high < 1.0


@given(st.lists(calls(), min_size=1, max_size=10), tables, st.floats(0.05, 0.99))
@settings(deadline=None, max_examples=200)
def test_at_that_scale_enough_meet_them_and_below_it_too_few(
    records: list[CallRecord], slos: Slos, goal: float
) -> None:
    scale = tightest_scale(records, slos, goal=goal).value

    def share_at(scale: float) -> float:
        return Attainment.of(records, scaled_all(slos, scale)).both().value

    if math.isinf(scale):
        assert share_at(1e12) < goal
    elif scale > 0:
        assert share_at(scale) >= goal
        assert share_at(scale * (1 - 1e-12)) < goal
    else:
        assert share_at(1e-9) >= goal


@given(st.lists(calls(), max_size=10), tables)
@settings(deadline=None, max_examples=100)
def test_attainment_never_falls_as_targets_soften(records: list[CallRecord], slos: Slos) -> None:
    met = [point.attainment.met for point in scale_curve(records, slos, [0.1, 0.5, 1, 3, 20])]
    assert met == sorted(met)


def test_a_scale_is_the_less_sure_the_more_alike_neighbours_fare() -> None:
    by_chance = tightest_scale(EVEN, CHAT)
    in_a_row = tightest_scale(
        sorted(EVEN, key=lambda record: record.ended_at_s - record.due_at_s), CHAT
    )
    assert in_a_row.value == by_chance.value
    assert in_a_row.high - in_a_row.low > 2 * (by_chance.high - by_chance.low)


def test_too_many_failures_and_no_scale_helps() -> None:
    records = [call(), *[call(error=CallError.OVERLOADED)] * 9]
    assert tightest_scale(records, CHAT).value == math.inf


def test_of_no_calls_nothing_is_known() -> None:
    nothing = tightest_scale([], CHAT)
    assert (nothing.value, nothing.low, nothing.high) == (math.inf, 0.0, math.inf)


def test_measures_until_the_scale_is_known_well_enough() -> None:
    search = SloScaleSearch(ScaleRules(rate_per_s=2.0, most_runs=9, tolerance=0.1), CHAT)
    assert search.next() == RunAt(2.0, 60.0)
    while isinstance(search.next(), RunAt):
        search.observe(EVEN)
    found = search.result()
    assert 1 < found.runs < 9
    assert found.calls == 100 * found.runs
    assert found.tightest.value == pytest.approx(0.9)
    assert found.tightest.high - found.tightest.low <= 0.1 * 0.9


def test_ends_when_its_runs_are_spent() -> None:
    search = SloScaleSearch(ScaleRules(rate_per_s=2.0, most_runs=2), CHAT)
    for _ in range(2):
        assert isinstance(search.next(), RunAt)
        search.observe(EVEN[::20])
    assert isinstance(search.next(), SloScale)


def test_one_run_is_enough_where_all_fail() -> None:
    search = SloScaleSearch(ScaleRules(rate_per_s=2.0), CHAT)
    search.observe([call(error=CallError.TIMEOUT)] * 100)
    found = search.next()
    assert isinstance(found, SloScale)
    assert found.tightest.value == math.inf
    assert found.curve[0].attainment.met == 0


def test_a_run_without_calls_is_no_answer() -> None:
    search = SloScaleSearch(ScaleRules(rate_per_s=2.0, most_runs=1), CHAT)
    search.observe([])
    found = search.next()
    assert isinstance(found, SloScale)
    assert (found.calls, found.tightest.low) == (0, 0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rate_per_s", 0.0),
        ("run_s", -1.0),
        ("most_runs", 0),
        ("goal", 1.5),
        ("tolerance", 0.0),
        ("scales", (1.0, 0.0)),
        ("z", math.nan),
    ],
)
def test_rules_of_scales_that_make_no_sense_are_named(field: str, value: object) -> None:
    given_fields: dict[str, object] = {"rate_per_s": 1.0, field: value}
    with pytest.raises(UsageError, match=field):
        ScaleRules(**given_fields)  # type: ignore[arg-type]
