"""Intervals: within bounds, around the value, and as wide as they say."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Estimate, difference, percentile_estimate, share
from antiphon.core.goodput.estimate import rank_bounds

COUNTS = st.integers(0, 5000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))


@given(COUNTS, st.floats(0.1, 6.0))
@settings(deadline=None, max_examples=200)
def test_wilson_lies_within_0_and_1_around_the_share(counts: tuple[int, int], z: float) -> None:
    met, of = counts
    some = share(met, of, z)
    assert 0.0 <= some.low <= some.value <= some.high <= 1.0
    assert some.value == (met / of if of else 0.0)


@given(COUNTS.filter(lambda counts: counts[1] > 0), st.floats(0.1, 6.0))
@settings(deadline=None, max_examples=150)
def test_wilsons_bounds_are_where_the_score_test_gives_up(
    counts: tuple[int, int], z: float
) -> None:
    met, of = counts
    some = share(met, of, z)
    for bound in (some.low, some.high):
        if 0 < bound < 1:
            score = (some.value - bound) / math.sqrt(bound * (1 - bound) / of)
            assert abs(score) == pytest.approx(z, rel=1e-6)


@given(COUNTS, st.integers(2, 50))
@settings(deadline=None, max_examples=200)
def test_more_calls_make_it_narrower(counts: tuple[int, int], times: int) -> None:
    met, of = counts
    few, many = share(met, of), share(met * times, of * times)
    assert many.high - many.low <= few.high - few.low


def test_wilson_by_the_book() -> None:
    # Newcombe 1998, table I: 81 of 263, 95 %.
    some = share(81, 263)
    assert (round(some.low, 4), round(some.high, 4)) == (0.2553, 0.3662)


def test_newcombe_by_the_book() -> None:
    # Newcombe 1998 (Statistics in Medicine 17, 873-890), table II, method 10: 56/70 - 48/80.
    some = difference(share(56, 70), share(48, 80))
    assert (round(some.value, 2), round(some.low, 4), round(some.high, 4)) == (0.2, 0.0524, 0.3339)


@given(COUNTS, COUNTS, st.floats(0.1, 6.0))
@settings(deadline=None, max_examples=200)
def test_a_difference_is_around_its_value_and_turns_round(
    some: tuple[int, int], other: tuple[int, int], z: float
) -> None:
    a, b = share(*some, z), share(*other, z)
    there, back = difference(a, b), difference(b, a)
    assert there.low <= there.value <= there.high
    assert (back.value, back.low, back.high) == (-there.value, -there.high, -there.low)
    assert not difference(a, a).excludes(0.0)


def test_medians_differ_by_noise_as_often_as_it_says() -> None:
    chance, trials = random.Random(2), 300

    def median() -> Estimate:
        return percentile_estimate([chance.expovariate(1.0) for _ in range(200)], 0.5)

    alarms = sum(difference(median(), median()).excludes(0.0) for _ in range(trials))
    assert share(alarms, trials, z=4.0).low <= 0.05


def test_what_can_not_be_bounded_differs_from_nothing() -> None:
    few, many = percentile_estimate([1.0] * 3, 0.99), percentile_estimate([9.0] * 5000, 0.99)
    assert not difference(few, many).excludes(0.0)


def test_equal_runs_differ_by_noise_and_others_do_not() -> None:
    assert not difference(share(900, 1000), share(905, 1000)).excludes(0.0)
    assert difference(share(900, 1000), share(700, 1000)).excludes(0.0)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=80), st.floats(0.01, 0.99))
@settings(deadline=None, max_examples=150)
def test_a_percentiles_interval_is_around_it(values: list[float], part: float) -> None:
    some = percentile_estimate(values, part)
    assert 0.0 <= some.low <= some.value <= some.high


def test_the_ranks_of_a_median_by_counting() -> None:
    # Heads in 16 throws: at most 3 with 1.1 %, at most 4 with 3.8 %, at most 5 with 10.5 %.
    assert rank_bounds(16, 0.5, z=1.96) == (4, 13)  # 2.5 % on either side
    assert rank_bounds(16, 0.5, z=1.645) == (5, 12)  # 5 %


def test_too_few_values_bound_no_tail() -> None:
    some = percentile_estimate([1.0] * 100, 0.99)
    assert (some.low, some.value, some.high) == (1.0, 1.0, math.inf)
    assert percentile_estimate([2.0], 0.5) == Estimate(2.0, 0.0, math.inf)


@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
def test_the_interval_has_the_true_percentile_as_often_as_it_says(part: float) -> None:
    chance, trials = random.Random(1), 600
    truth = -math.log(1 - part)
    hits = sum(
        not percentile_estimate(
            [chance.expovariate(1.0) for _ in range(600)], part, z=1.96
        ).excludes(truth)
        for _ in range(trials)
    )
    assert not share(hits, trials, z=4.0).high < 0.95
    assert hits < trials


def test_of_very_many_values() -> None:
    below, above = rank_bounds(1_000_000, 0.99)
    assert below < 990_000 < above
    assert above - below == pytest.approx(2 * 1.96 * math.sqrt(1e6 * 0.99 * 0.01), rel=0.02)
