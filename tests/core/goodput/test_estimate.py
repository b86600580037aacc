"""Intervals: within bounds, around the value, and as wide as they say."""

import math
import random

import pytest
from goodput_kit import queue, queue_knee
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Estimate, difference, percentile_estimate, share
from antiphon.core.goodput.estimate import design_effect, design_effect_of, rank_bounds

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


@given(st.lists(st.tuples(st.integers(0, 9), st.just(9)), max_size=20))
@settings(deadline=None, max_examples=150)
def test_the_design_effect_lies_between_one_call_and_all(batches: list[tuple[int, int]]) -> None:
    assert 1.0 <= design_effect(batches) <= max(1, 9 * len(batches))


@given(st.integers(2, 10), st.data())
@settings(deadline=None, max_examples=50)
def test_batches_of_one_call_have_no_neighbours_to_tell_of(of: int, data: st.DataObject) -> None:
    met = data.draw(st.lists(st.booleans(), min_size=of, max_size=of))
    assert design_effect_of(met) == pytest.approx(1.0)


def test_independent_calls_count_in_full() -> None:
    chance = random.Random(3)
    effects = [design_effect_of([chance.random() < 0.9 for _ in range(500)]) for _ in range(200)]
    assert sum(effects) / 200 < 1.4  # Never below 1, so it is above 1 on average.


@pytest.mark.parametrize("alike", [10, 40])
def test_calls_that_fare_alike_count_as_one(alike: int) -> None:
    chance = random.Random(4)

    def effect() -> float:
        fates = [chance.random() < 0.9 for _ in range(5000 // alike)]
        return design_effect_of([fate for fate in fates for _ in range(alike)])

    assert sum(effect() for _ in range(200)) / 200 == pytest.approx(alike, rel=0.15)


def test_of_a_queue_the_interval_contains_the_truth_which_a_plain_one_does_not() -> None:
    knee, server, chance = queue_knee(6.0, 0.9), queue(6.0), random.Random(5)
    runs = [server(chance, knee, 5000.0) for _ in range(100)]
    contained = sum(not run.both().excludes(0.9) for run in runs)
    plain = sum(not share(run.met, run.calls).excludes(0.9) for run in runs)
    assert contained >= 85
    assert plain <= 40


def test_a_percentile_of_calls_that_fare_alike_is_less_sure() -> None:
    values = [float(place // 50) for place in range(1000)]
    mixed = random.Random(6).sample(values, len(values))
    in_order, in_disorder = percentile_estimate(values, 0.5), percentile_estimate(mixed, 0.5)
    assert in_order.value == in_disorder.value
    assert in_order.high - in_order.low > 3 * (in_disorder.high - in_disorder.low)


@given(st.integers(1, 3000), st.floats(0.01, 0.99), st.floats(0.1, 4.0), st.floats(1.0, 5000.0))
@settings(deadline=None, max_examples=150)
def test_ranks_are_within_the_values_with_any_design_effect(
    count: int, part: float, z: float, effect: float
) -> None:
    below, above = rank_bounds(count, part, z)
    assert 0 <= below < above <= count + 1
    wider = rank_bounds(count, part, z, design_effect=effect)
    assert 0 <= wider[0] < wider[1] <= count + 1


def test_of_very_many_values() -> None:
    below, above = rank_bounds(1_000_000, 0.99)
    assert below < 990_000 < above
    assert above - below == pytest.approx(2 * 1.96 * math.sqrt(1e6 * 0.99 * 0.01), rel=0.02)
