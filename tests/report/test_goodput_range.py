"""How sure a goodput is: the band of attainment, and where it leaves the goal."""

from dataclasses import replace
from math import inf
from random import Random
from statistics import median

import pytest
from found_searches import GOODPUT, NOTHING_MEASURED, NOTHING_PASSES, probe
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Attainment, Goodput, GoodputSearch, SearchRules, difference, share
from antiphon.report.goodput_range import goodput_range


def test_bounds_lie_where_the_band_leaves_the_goal() -> None:
    """By hand: the lower edge is 0.9300 at 1.5/s and 0.8137 at 2/s; the upper 0.9069 and 0.2888."""
    low, high = share(98, 100).low, share(89, 100).low
    up, down = share(85, 100).high, share(20, 100).high
    found = goodput_range(GOODPUT)
    assert found.value == 1.0
    assert found.low == pytest.approx((1.5 + 0.5 * (low - 0.9) / (low - high)) / 2)
    assert found.high == pytest.approx((2.1 + 1.9 * (up - 0.9) / (up - down)) / 2)
    assert 0.75 < found.low < 1.0 < found.high < 2.0


def test_bounds_that_were_not_measured_are_open() -> None:
    assert (goodput_range(NOTHING_MEASURED).low, goodput_range(NOTHING_MEASURED).high) == (0.0, inf)
    assert (goodput_range(NOTHING_PASSES).low, goodput_range(NOTHING_PASSES).high) == (0.0, 0.0)
    rises = replace(GOODPUT, probes=(probe(1.0, 99),), rate_per_s=1.0)
    assert goodput_range(rises).high == inf


@settings(deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.integers(0, 8))
def test_the_result_lies_within_its_bounds(met: list[int], passing: int) -> None:
    probes = tuple(probe(place + 1.0, count) for place, count in enumerate(met))
    found: Goodput = replace(
        GOODPUT, probes=probes, rate_per_s=float(min(passing, len(met))), devices=3
    )
    estimate = goodput_range(found)
    assert 0 <= estimate.low <= estimate.value <= estimate.high


def test_an_edge_that_falls_twice_bounds_from_its_first_fall_to_its_last() -> None:
    probes = tuple(
        probe(rate, met) for rate, met in ((1.0, 99), (2.0, 84), (3.0, 98), (4.0, 93), (5.0, 20))
    )
    found = goodput_range(replace(GOODPUT, probes=probes, rate_per_s=3.0, devices=1))
    assert 1.0 < found.low < 2.0
    assert 4.0 < found.high < 5.0


def test_more_calls_make_it_surer() -> None:
    def of(calls: int) -> Goodput:
        probes = tuple(
            replace(one, attainment=replace(one.attainment, calls=100 * calls, met=met * calls))
            for one, met in zip(GOODPUT.probes, (99, 98, 89, 85, 20), strict=True)
        )
        return replace(GOODPUT, probes=probes)

    few, many = goodput_range(of(1)), goodput_range(of(50))
    assert few.low < many.low
    assert many.high < few.high


def searched(seed: int, knee_per_s: float) -> Goodput:
    """A search on a server of which 9 in 10 calls meet their targets at the knee, by chance."""
    chance, search = Random(seed), GoodputSearch(SearchRules())
    while not isinstance(step := search.next(), Goodput):
        calls = int(step.rate_per_s * step.duration_s)
        chances = 1 / (1 + (step.rate_per_s / knee_per_s) ** 6 / 9)
        met = sum(chance.random() < chances for _ in range(calls))
        attainment = Attainment(calls=calls, met=met, ttft_met=met, tpot_met=met)
        search.observe(step.rate_per_s, attainment)
    return step


def test_the_truth_lies_within_the_bounds() -> None:
    """19 times in 20 at least, and they are not as wide as to say nothing."""
    found = [goodput_range(searched(seed, 2.3)) for seed in range(60)]
    assert sum(one.low <= 2.3 <= one.high for one in found) >= 57
    assert median(one.high - one.low for one in found) < 0.15 * 2.3


def test_equal_servers_seldom_differ_and_unequal_ones_do() -> None:
    found = [goodput_range(searched(seed, 2.3)) for seed in range(40)]
    better = [goodput_range(searched(seed, 3.0)) for seed in range(100, 110)]
    equal = zip(found[::2], found[1::2], strict=True)
    assert sum(difference(a, b).excludes(0.0) for a, b in equal) <= 1
    assert all(difference(a, b).excludes(0.0) for a, b in zip(better, found[:10], strict=True))
