from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.workload import (
    Constant,
    GammaBursts,
    OwnTimes,
    Poisson,
    calls_per_session,
    has_own_times,
    parse_workload,
    timed,
)

FIXED = parse_workload("fixed:input=8,output=4")


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**40), st.integers(0, 50), st.floats(0, 20))
def test_sessions_come_in_order_within_both_limits(
    seed: int, limit: int, duration_s: float
) -> None:
    arrivals = GammaBursts(5, 2)
    taken = list(timed(FIXED, arrivals, seed=seed, limit=limit, duration_s=duration_s))
    assert taken == list(timed(FIXED, arrivals, seed=seed, limit=limit, duration_s=duration_s))
    assert len(taken) <= limit
    assert all(one.at_s < duration_s for one in taken)
    assert all(a.at_s <= b.at_s for a, b in pairwise(taken))
    if len(taken) < limit:
        (next_one,) = islice(arrivals.times(seed), len(taken), len(taken) + 1)
        assert next_one >= duration_s, "it ended because its time was over"
    assert [one.session.number for one in taken] == list(range(len(taken)))


def test_without_limits_it_goes_on() -> None:
    assert len(list(islice(timed(FIXED, Poisson(1000), seed=1), 3000))) == 3000


def test_the_rate_may_change_without_what_is_sent() -> None:
    slow, fast = (list(timed(FIXED, Constant(rate), seed=1, limit=20)) for rate in (1, 10))
    assert [one.session for one in slow] == [one.session for one in fast]
    assert [one.at_s for one in slow] == pytest.approx([one.at_s * 10 for one in fast])


@pytest.mark.parametrize("name", ["fixed", "multi-turn", "mix:chat=1"])
def test_own_times_need_a_file(name: str) -> None:
    assert not has_own_times(parse_workload(name))
    with pytest.raises(UsageError, match="arrivals trace: the workload has no times of its own"):
        timed(parse_workload(name), OwnTimes(), seed=1)


def test_calls_of_a_session() -> None:
    assert calls_per_session(FIXED, 1) == 1
    assert calls_per_session(parse_workload("multi-turn:turns=2-4"), 1) == pytest.approx(3, abs=0.2)
    assert calls_per_session(parse_workload("agents:fan_out=3"), 1) == 5
