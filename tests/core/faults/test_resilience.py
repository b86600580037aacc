"""What faults cost: the area under the reference, and the time until all is as before."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.core.faults import (
    CallOutcome,
    attained_before,
    attainment,
    resilience,
    windowed,
)

CALLS = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 5), st.booleans()).map(
        lambda one: CallOutcome(one[0], one[0] + one[1], one[2])
    ),
    max_size=40,
)
AT_ONCE = [CallOutcome(0.0, 0.0, False), CallOutcome(0.0, 0.0, True)]
FAULTS = st.lists(st.floats(0, 100), min_size=1, max_size=5)


def each_second(met: str) -> list[CallOutcome]:
    """A call a second, each answered within half of one: "." is met, "x" is not."""
    return [CallOutcome(float(at), at + 0.5, one == ".") for at, one in enumerate(met)]


@given(CALLS, FAULTS, st.floats(0.1, 1), st.floats(0.1, 20))
@example(AT_ONCE, [0.0], 1.0, 1.0)
def test_the_whole_is_bounded_and_no_order_matters(
    calls: list[CallOutcome], faults: list[float], reference: float, window_s: float
) -> None:
    found = resilience(calls, faults, reference=reference, window_s=window_s)
    turned = resilience(calls[::-1], faults[::-1], reference=reference, window_s=window_s)
    assert found == turned
    assert 0 <= found.lost_calls <= reference * len(calls) + 1e-9
    assert 0 <= found.lost_share <= 1 + 1e-9
    ends = [*sorted(faults)[1:], float("inf")]
    for impact, end in zip(found.impacts, ends, strict=True):
        assert impact.recovery_s is None or 0 <= impact.recovery_s <= end - impact.at_s


@given(CALLS, FAULTS, st.floats(0.1, 20))
def test_nothing_is_lost_where_every_call_is_met(
    calls: list[CallOutcome], faults: list[float], window_s: float
) -> None:
    good = [CallOutcome(call.due_at_s, call.ended_at_s, True) for call in calls]
    found = resilience(good, faults, reference=1.0, window_s=window_s)
    assert found.lost_calls == 0
    for impact, end in zip(found.impacts, [*sorted(faults)[1:], float("inf")], strict=True):
        came = any(impact.at_s <= call.due_at_s < end for call in good)
        assert impact.recovery_s == (0.0 if came else None)


def test_an_outage_costs_its_calls_and_ends_with_the_first_good_one() -> None:
    calls = each_second("..........xxxx..........")
    found = resilience(calls, [9.75], reference=1.0, window_s=2.0)
    assert found.lost_calls == 4
    assert found.lost_share == pytest.approx(4 / 24)
    (impact,) = found.impacts
    assert impact.recovery_s == pytest.approx(14 - 9.75)


def test_what_was_under_way_at_the_fault_is_lost_to_it() -> None:
    calls = [*each_second(".........."), CallOutcome(9.5, 20.0, False), *each_second("")]
    (impact,) = resilience(calls, [10.0], reference=1.0, window_s=2.0).impacts
    assert impact.lost_calls == 1
    assert impact.recovery_s is None, "no call was due after it"


@given(CALLS, FAULTS, st.floats(0.1, 20))
@example([CallOutcome(0.0, 0.0, False)], [0.0], 1.0)
def test_no_call_is_lost_twice(
    calls: list[CallOutcome], faults: list[float], window_s: float
) -> None:
    found = resilience(calls, faults, reference=1.0, window_s=window_s)
    assert sum(one.lost_calls for one in found.impacts) == found.lost_calls


def test_a_call_that_came_between_two_faults_is_lost_to_the_one_that_it_met() -> None:
    calls = [*each_second("...."), CallOutcome(4.9, 7.0, False)]
    first, second = resilience(calls, [2.5, 5.0], reference=1.0, window_s=1.0).impacts
    assert (first.lost_calls, second.lost_calls) == (0, 1)


def test_each_fault_answers_for_what_comes_before_the_next() -> None:
    calls = each_second("....xx......xxxxxxxx....")
    first, second, third = resilience(
        calls, [3.75, 11.75, 15.75], reference=1.0, window_s=1.0
    ).impacts
    assert first.recovery_s == pytest.approx(2.25)
    assert second.recovery_s is None
    assert third.recovery_s == pytest.approx(4.25)
    assert (first.lost_calls, second.lost_calls, third.lost_calls) == (2, 4, 4)


def test_a_service_that_misses_some_without_faults_recovers_to_that() -> None:
    calls = each_second(".x" * 10 + "xxxx" + ".x" * 10)
    before = attained_before(calls, 19.75)
    assert before == 0.5
    found = resilience(calls, [19.75], reference=0.5, window_s=2.0)
    assert found.lost_calls == pytest.approx(2)
    assert found.impacts[0].recovery_s == pytest.approx(23 - 19.75), "the next two are half good"


def test_too_few_calls_are_no_reference() -> None:
    assert attained_before(each_second("........."), 100.0) is None
    assert attained_before(each_second(".........x"), 100.0) == 0.9
    assert attained_before(each_second(".........x"), 9.25) is None, "the last was not over"
    assert attainment([]) is None


@given(CALLS, st.floats(0.01, 30))
def test_a_window_holds_the_calls_due_in_it(calls: list[CallOutcome], window_s: float) -> None:
    ordered = sorted(calls, key=lambda call: call.due_at_s)
    curve = windowed(ordered, window_s)
    assert all(a[0] <= b[0] for a, b in pairwise(curve))
    for at, share in curve:
        inside = [c.met for c in ordered if at <= c.due_at_s < at + window_s]
        assert 0 <= share <= 1
        if sum(c.due_at_s == at for c in ordered) == 1:
            assert share == pytest.approx(sum(inside) / len(inside))
