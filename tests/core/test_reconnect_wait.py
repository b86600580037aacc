"""Waits between calls of somebody who is not there."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.reconnect_wait import ReconnectWait


@given(
    first_s=st.floats(0.001, 1.0),
    growth=st.floats(1.0, 1000.0),
    calls=st.lists(st.booleans(), max_size=40),
)
def test_waits_double_up_to_the_longest_and_begin_anew_after_an_answer(
    first_s: float, growth: float, calls: list[bool]
) -> None:
    longest_s = first_s * growth
    waits, expected_s = ReconnectWait(first_s, longest_s), first_s
    for came in calls:
        expected_s = first_s if came else expected_s
        assert waits.is_longest == (expected_s == longest_s) or came
        assert waits.after(came=came) == expected_s
        assert first_s <= expected_s <= longest_s
        expected_s = min(2 * expected_s, longest_s)


def test_it_is_told_when_waits_grow_no_more() -> None:
    waits = ReconnectWait(0.5, 2.0)
    assert [(waits.is_longest, waits.after()) for _ in range(4)] == [
        (False, 0.5),
        (False, 1.0),
        (True, 2.0),
        (True, 2.0),
    ]
    assert waits.after(came=True) == 0.5
    assert not waits.is_longest
