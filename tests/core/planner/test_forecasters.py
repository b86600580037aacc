"""Forecasts that are exact where they can be, and safe where they can't."""

from collections.abc import Callable
from math import isfinite, pi, sin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.planner import (
    STANDARD_FORECASTERS,
    Autoregression,
    BestForecaster,
    Forecaster,
    Holt,
    LastValue,
    LocalTrend,
)
from antiphon.core.planner.least_squares import solve

LAW = settings(deadline=None, max_examples=30, database=None, derandomize=True)


def taught(way: Forecaster, series: Callable[[int], float], length: int = 80) -> Forecaster:
    for at in range(length):
        way.observe(series(at))
    return way


@pytest.mark.parametrize("make", STANDARD_FORECASTERS)
def test_a_constant_is_told_exactly_from_the_first_value_on(make: Callable[[], Forecaster]) -> None:
    way = make()
    assert way.predict(3) == 0.0
    for _ in range(40):
        way.observe(7.0)
        assert way.predict(5) == pytest.approx(7.0)


@pytest.mark.parametrize("way", [Holt(damping=1.0), LocalTrend()])
def test_a_line_is_followed(way: Forecaster) -> None:
    taught(way, lambda at: 3.0 + 0.5 * at)
    assert way.predict(5) == pytest.approx(3 + 0.5 * 84, rel=1e-3)


def test_a_damped_trend_goes_less_far_but_the_right_way() -> None:
    way = taught(Holt(), lambda at: 0.5 * at)
    assert 0.5 * 79 < way.predict(10) < 0.5 * 89


@pytest.mark.parametrize("period", [11.0, 40.0, 63.0])
def test_a_sine_of_any_period_is_told_by_its_past(period: float) -> None:
    def series(at: int) -> float:
        return 25 + 20 * sin(2 * pi * at / period)

    way = taught(Autoregression(), series, 160)
    for steps in (1, 5, 10):
        assert way.predict(steps) == pytest.approx(series(159 + steps), abs=0.5)
    best = BestForecaster(5)
    for at in range(160):
        best.observe(series(at))
    assert best.name == "ar"
    assert best.error is not None
    assert best.error < 0.5


def test_the_best_is_who_was_closest_so_many_steps_ahead() -> None:
    best = BestForecaster(4, ways=(LastValue(), LocalTrend()))
    for at in range(10):
        best.observe(2.0 * at)
    assert best.name == "kalman"
    for _ in range(60):
        best.observe(18.0)
    assert best.name == "constant", "the first of equals"
    assert best.highest(4) == 18.0


def test_before_it_was_checked_nobody_knows_how_good_a_forecast_is() -> None:
    best = BestForecaster(3)
    for at in range(6):
        assert best.error is None
        best.observe(float(at))
    best.observe(6.0)
    assert best.error is not None


@LAW
@given(
    st.lists(st.floats(0, 1e9), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_no_series_gives_anything_but_numbers(values: list[float], ahead: int) -> None:
    best, bounded = BestForecaster(ahead), Autoregression()
    for value in values:
        best.observe(value)
        bounded.observe(value)
    told = [best.predict(step) for step in range(1, ahead + 1)]
    assert all(isfinite(one) and one >= 0 for one in told)
    assert best.highest(ahead) == max(told)
    reach = (max(values) - min(values)) / 2 + 1e-6 * max(values)
    assert min(values) - reach <= bounded.predict(ahead) <= max(values) + reach


@LAW
@given(st.lists(st.floats(-10, 10), min_size=3, max_size=3))
def test_least_squares_finds_what_is_there(weights: list[float]) -> None:
    rows = [[1.0, at, at * at % 7.0] for at in map(float, range(12))]
    values = [sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows]
    assert solve(rows, values) == pytest.approx(weights, abs=1e-6)
