"""How sure a goodput is: the band of attainment, and where it leaves the goal."""

from collections.abc import Sequence
from math import inf
from statistics import median

import pytest
from goodput_kit import Server, counted, logistic, searched
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import (
    Goodput,
    GoodputSearch,
    Probe,
    SearchRules,
    StopReason,
    difference,
    share,
)


def measured(
    points: Sequence[tuple[float, int]], rate_per_s: float, *, of: int = 100, devices: int = 1
) -> Goodput:
    """A search that measured these (rate, calls that met their targets), and found that rate."""
    return Goodput(
        rate_per_s=rate_per_s,
        fails_at_per_s=min((rate for rate, _met in points if rate > rate_per_s), default=None),
        goal=0.9,
        devices=devices,
        stopped=StopReason.FOUND,
        probes=tuple(
            Probe(
                rate_per_s=rate,
                runs=1,
                attainment=counted(met, of),
                fitted=met / of,
                passes=rate <= rate_per_s,
            )
            for rate, met in points
        ),
    )


FIVE = ((1.0, 99), (1.5, 98), (2.0, 90), (2.1, 85), (4.0, 20))


def test_bounds_lie_where_the_band_leaves_the_goal() -> None:
    """By hand: the lower edge is 0.9300 at 1.5/s and 0.8256 at 2/s; the upper 0.9069 and 0.2888."""
    found = measured(FIVE, 2.0, devices=2).estimate
    low, high = share(98, 100).low, share(90, 100).low
    up, down = share(85, 100).high, share(20, 100).high
    assert found.value == 1.0
    assert found.low == pytest.approx((1.5 + 0.5 * (low - 0.9) / (low - high)) / 2)
    assert found.high == pytest.approx((2.1 + 1.9 * (up - 0.9) / (up - down)) / 2)
    assert 0.75 < found.low < 1.0 < found.high < 2.0


def test_bounds_that_were_not_measured_are_open() -> None:
    nothing, fails, passes = measured([], 0.0), measured([(1.0, 0)], 0.0), measured([(1.0, 99)], 1)
    assert (nothing.estimate.low, nothing.estimate.high) == (0.0, inf)
    assert (fails.estimate.low, fails.estimate.high) == (0.0, 0.0)
    assert passes.estimate.high == inf


@settings(deadline=None)
@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 8))
def test_the_result_lies_within_its_bounds(met: list[int], passing: int) -> None:
    points = [(place + 1.0, count) for place, count in enumerate(met)]
    found = measured(points, float(min(passing, len(met))), devices=3)
    assert 0 <= found.estimate.low <= found.per_device <= found.estimate.high


def test_an_edge_that_falls_twice_bounds_from_its_first_fall_to_its_last() -> None:
    found = measured([(1.0, 99), (2.0, 84), (3.0, 98), (4.0, 93), (5.0, 20)], 3.0).estimate
    assert 1.0 < found.low < 2.0
    assert 4.0 < found.high < 5.0


def test_more_calls_make_it_surer() -> None:
    few = measured(FIVE, 2.0).estimate
    many = measured([(rate, 50 * met) for rate, met in FIVE], 2.0, of=5000).estimate
    assert few.low < many.low
    assert many.high < few.high


def found_by(server: Server, seeds: range, devices: int = 1) -> list[Goodput]:
    """The results of all seeds."""
    rules = SearchRules(devices=devices)
    return [searched(GoodputSearch(rules), server, seed)[0] for seed in seeds]


def test_the_truth_lies_within_the_bounds() -> None:
    """19 times in 20 at least, and they are not as wide as to say nothing."""
    found = [one.estimate for one in found_by(logistic(2.3, 0.2, 0.9), range(100))]
    assert sum(not one.excludes(2.3) for one in found) >= 95
    assert median(one.high - one.low for one in found) < 0.15 * 2.3


def test_equal_servers_seldom_differ_and_unequal_ones_do() -> None:
    found = [one.estimate for one in found_by(logistic(2.3, 0.2, 0.9), range(100))]
    better = [one.estimate for one in found_by(logistic(3.0, 0.2, 0.9), range(100, 110))]
    equal = zip(found[::2], found[1::2], strict=True)
    assert sum(difference(a, b).excludes(0.0) for a, b in equal) <= 2
    assert all(difference(a, b).excludes(0.0) for a, b in zip(better, found[:10], strict=True))


def test_twice_the_rate_on_twice_the_devices_is_no_difference() -> None:
    (one,) = found_by(logistic(10.0, 0.1, 0.9), range(1))
    (two,) = found_by(logistic(20.0, 0.1, 0.9), range(1, 2), devices=2)
    assert not difference(one.estimate, two.estimate).excludes(0.0)
