"""Forecasts that are exact where they can be, and safe where they can't."""

import random
from collections.abc import Callable
from math import cos, isfinite, pi, sin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.planner import (
    STANDARD_FORECASTERS,
    Autoregression,
    BestForecaster,
    FadingMean,
    Forecaster,
    Holt,
    LastValue,
    LocalTrend,
    Seasonal,
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
    assert best.name in ("ar", "seasonal")
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


def test_a_rise_is_believed_before_a_worker_could_have_started() -> None:
    """One interval ahead says who is right long before eight intervals ahead do."""
    best = BestForecaster(8)
    for at in range(8):
        best.observe(5.0 + at)
    assert best.error is None
    assert best.predict(8) > 15.0


def test_a_noisy_constant_is_its_mean_and_no_trend() -> None:
    chance = random.Random(3)
    best = BestForecaster(5)
    for _ in range(200):
        best.observe(chance.gauss(20.0, 2.0))
    assert best.highest(10) == pytest.approx(20.0, abs=1.5)


def test_what_a_forecast_falls_short_by_is_what_one_in_five_exceeded() -> None:
    best = BestForecaster(1, ways=(FadingMean(1.0),), window=10)
    for value in (0.0, 0.0, 10.0, 10.0, 10.0, 17.0):
        best.observe(value)
    assert best.short == 0.0, "two of ten may have been further"
    for value in (20.0, 10.0, 15.0):
        best.observe(value)
    assert best.short == 5.0, "after 10, 7 and 5 too little"


def test_a_forecast_that_is_above_falls_short_by_nothing() -> None:
    best = BestForecaster(1, ways=(LastValue(),), window=10)
    for value in range(20, 0, -1):
        best.observe(float(value))
    assert best.short == 0.0
    assert best.error == 1.0


# ── seasons ──────────────────────────────────────────────────────────────────────────────────────


def noisy_sine(period: float, noise: float) -> Callable[[int], float]:
    chance = random.Random(5)
    return lambda at: 25 - 20 * cos(2 * pi * at / period) + chance.gauss(0, noise)


@pytest.mark.parametrize("period", [20.0, 40.0, 90.0])
def test_a_season_is_found_in_noise_after_one_and_a_half_of_it(period: float) -> None:
    way = taught(Seasonal(), noisy_sine(period, 1.5), round(1.6 * period) + 10)
    now = round(1.6 * period) + 9
    for steps in (1, 5, 9, round(period) + 3):
        true = 25 - 20 * cos(2 * pi * (now + steps) / period)
        assert way.predict(steps) == pytest.approx(true, abs=6.0)


def test_a_season_that_repeats_exactly_is_told_exactly_but_for_its_edges() -> None:
    def steps(at: int) -> float:
        return 40.0 if at % 30 < 12 else 10.0

    way = taught(Seasonal(), steps, 200)
    assert [way.predict(n) for n in (1, 5, 8, 14, 18, 38)] == pytest.approx(
        [steps(199 + n) for n in (1, 5, 8, 14, 18, 38)]
    )


def test_a_season_on_a_higher_level_is_shifted_there() -> None:
    way = taught(
        Seasonal(), lambda at: (10.0 if at < 90 else 13.0) + 5 * sin(2 * pi * at / 30), 112
    )
    assert way.predict(6) == pytest.approx(13 + 5 * sin(2 * pi * 117 / 30), abs=0.5)


def test_noise_is_no_season() -> None:
    chance = random.Random(1)
    way = taught(Seasonal(), lambda _: chance.gauss(20, 3), 400)
    assert {round(way.predict(n), 9) for n in range(1, 20)} == {round(way.predict(1), 9)}


def test_a_noisy_sine_is_told_better_by_its_season_than_by_any_trend() -> None:
    best = BestForecaster(5)
    series = noisy_sine(40.0, 3.0)
    for at in range(160):
        best.observe(series(at))
    assert best.name in ("seasonal", "ar")
    assert best.error is not None
    assert best.error < 4.5, "of which 2.4 are what nobody can know"


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
