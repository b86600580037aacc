"""How long workers take to start is what they took, not what was written down."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_kit import DECODE, PREFILL, planner, rules, seen

from antiphon.core.planner import PoolSeen
from antiphon.core.planner.start_time import StartTime

POOLS = (PoolSeen(role=PREFILL, ready=9), PoolSeen(role=DECODE, ready=9))


def learned(told_s: float, *starts_s: float) -> float:
    one = StartTime(told_s)
    one.observe(starts_s)
    return one.seconds


def test_what_was_told_holds_until_a_start_was_seen() -> None:
    assert learned(60.0) == 60.0
    assert learned(60.0, 7.0) == 7.0
    assert learned(60.0, float("nan"), -1.0, 1e9) == 60.0, "no measurements"


def test_starts_that_vary_are_taken_to_be_longer_than_their_mean() -> None:
    assert learned(60.0, *[5.0, 9.0] * 40) == pytest.approx(7.0 + 2 * 2.0, abs=1.5)
    assert learned(60.0, *[50.0] * 20, *[8.0] * 40) == pytest.approx(8.0, abs=0.5)


@given(st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=30))
def test_it_is_never_below_the_shortest_nor_far_above_the_longest(starts_s: list[float]) -> None:
    said = learned(60.0, *starts_s)
    assert min(starts_s) - 1e-9 <= said
    assert said <= max(starts_s) + 2 * (max(starts_s) - min(starts_s)) + 1e-9


def test_a_planner_looks_as_far_ahead_as_its_workers_take() -> None:
    """A rise of 3 requests/s an interval: who takes six intervals to start must be asked for now,
    whatever was written down."""
    expected: dict[float, float] = {}
    for start_s in (1.0, 90.0):
        one, decision = planner(rules(ready_s=15.0, budget=64)), None
        for number in range(30):
            now = seen(15.0 * (number + 1), 15.0 * (10 + 3 * number), *POOLS)
            decision = one.decide(replace(now, starts_s=(start_s,)))
        assert decision is not None
        expected[start_s] = decision.expected_per_s
    assert expected[90.0] > expected[1.0] + 3 * 4


def test_the_same_without_a_start_is_as_the_rules_say() -> None:
    assert planner(rules(ready_s=60.0))._ahead == 5
    assert planner(rules(ready_s=0.0))._ahead == 1
