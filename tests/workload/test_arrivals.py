"""Point processes: the same for a seed, in order, and as often as they promise."""

import math
from collections.abc import Sequence
from itertools import islice, pairwise, takewhile
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.workload import (
    Arrivals,
    Constant,
    GammaBursts,
    OnOff,
    OwnTimes,
    Poisson,
    Sine,
    poisson,
)

seeds = st.integers(0, 2**40)
rates = st.floats(0.01, 1000)


@st.composite
def arrivals(draw: st.DrawFn) -> Arrivals:
    rate = draw(rates)
    low = draw(st.floats(0, 10))
    return draw(
        st.sampled_from(
            [
                Poisson(rate),
                Constant(rate),
                GammaBursts(rate, draw(st.floats(0.1, 10))),
                OnOff(rate, draw(st.floats(0.1, 60)), draw(st.floats(0, 60))),
                Sine(low, low + draw(st.floats(0.1, 10)), draw(st.floats(1, 600))),
            ]
        )
    )


def first(source: Arrivals, count: int, seed: int = 1) -> list[float]:
    return list(islice(source.times(seed), count))


def until(source: Arrivals, end_s: float, seed: int = 1) -> list[float]:
    return list(takewhile(lambda at: at < end_s, source.times(seed)))


def gaps(times: Sequence[float]) -> list[float]:
    return [b - a for a, b in pairwise([0.0, *times])]


@settings(deadline=None, max_examples=100)
@given(arrivals(), seeds)
def test_times_are_in_order_and_the_same_each_time(source: Arrivals, seed: int) -> None:
    times = first(source, 50, seed)
    assert times == first(source, 50, seed)
    assert all(0 <= a <= b < math.inf for a, b in pairwise(times))


@settings(deadline=None, max_examples=100)
@given(arrivals(), seeds)
def test_seeds_differ_but_where_nothing_is_drawn(source: Arrivals, seed: int) -> None:
    same = first(source, 20, seed) == first(source, 20, seed + 1)
    assert same == isinstance(source, Constant)


@settings(deadline=None, max_examples=100)
@given(arrivals(), rates)
def test_another_rate_is_the_same_pattern(source: Arrivals, rate: float) -> None:
    scaled = source.at_rate(rate)
    assert type(scaled) is type(source)
    assert scaled.rate_per_s == pytest.approx(rate)
    assert scaled.at_rate(source.rate_per_s).rate_per_s == pytest.approx(source.rate_per_s)


@pytest.mark.parametrize(
    "source",
    [
        Poisson(10),
        Constant(10),
        GammaBursts(10, 0.3),
        GammaBursts(10, 1),
        GammaBursts(10, 3),
        OnOff(10, 5, 10),
        OnOff(10, 2, 0),
        Sine(2, 18, 60),
        Sine(10, 10, 60),
        Sine(0, 5, 30).at_rate(10),
    ],
    ids=repr,
)
def test_the_mean_rate_is_what_it_promises(source: Arrivals) -> None:
    assert source.rate_per_s == pytest.approx(10)
    counts = [len(until(source, 600, seed)) for seed in range(3)]
    assert fmean(counts) / 600 == pytest.approx(10, rel=0.06)


def test_poisson_gaps_are_memoryless() -> None:
    between = gaps(first(Poisson(10.0), 20_000))
    assert sum(gap > 0.1 for gap in between) / len(between) == pytest.approx(0.3679, abs=0.02)
    assert pstdev(between) / fmean(between) == pytest.approx(1, abs=0.04)


@pytest.mark.parametrize("cv", [0.2, 0.5, 1.0, 2.0, 4.0])
def test_bursts_have_the_deviation_that_was_asked_for(cv: float) -> None:
    between = gaps(first(GammaBursts(5.0, cv), 40_000))
    assert pstdev(between) / fmean(between) == pytest.approx(cv, rel=0.08)


def test_nobody_comes_during_silences() -> None:
    times = until(OnOff(4, 5, 10), 3000)
    assert all(at % 15 < 5 for at in times)
    for low, high in ((0, 1), (2, 3), (4, 5)):
        inside = sum(low <= at % 15 < high for at in times)
        assert inside / 200 == pytest.approx(12, rel=0.08), "12/s all through a burst"


def test_the_rate_of_sine_follows_its_curve() -> None:
    source = Sine(1, 9, 80)
    times = until(source, 80 * 300)
    for begin in range(0, 80, 8):
        seen = sum(begin <= at % 80 < begin + 8 for at in times) / (300 * 8)
        meant = fmean(source.rate_at(begin + step / 10) for step in range(80))
        assert seen == pytest.approx(meant, rel=0.08), begin
    assert source.rate_at(20) == pytest.approx(9)
    assert source.rate_at(60) == pytest.approx(1)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    with pytest.raises(
        UsageError, match=r"arrivals poisson: rate must be from 0.000001 to 1000000"
    ):
        Poisson(rate)
    for source in (Poisson(1), Constant(1), GammaBursts(1, 2), OnOff(1, 1, 1), Sine(1, 2, 3)):
        with pytest.raises(UsageError, match="rate must be from"):
            source.at_rate(rate)
    with pytest.raises(UsageError, match="rate must be from"):
        OwnTimes().at_rate(rate)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_process_without_a_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        poisson(rate, 1)


def test_own_times_have_one_scale() -> None:
    assert OwnTimes(speed=4).at_rate(2) == OwnTimes(rate_per_s=2)
    with pytest.raises(UsageError, match="speed and rate exclude each other: give one"):
        OwnTimes(speed=2, rate_per_s=1)
