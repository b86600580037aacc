"""Only durations cross: clocks of two processes have nothing in common."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.types import Request, RequestId, SamplingParams
from antiphon.wire import FrameError, from_durations, to_durations

times = st.floats(-1e9, 1e9)


def request(deadline: float | None, arrived_at: float | None) -> Request:
    return Request(
        id=RequestId("r"),
        prompt=(1, 2),
        sampling=SamplingParams(max_tokens=1, seed=1),
        deadline=deadline,
        arrived_at=arrived_at,
    )


@given(times, times, times, st.floats(-1e6, 1e6))
def test_what_is_left_is_left_on_the_other_clock(now, deadline, arrived_at, other_now) -> None:
    got = from_durations(to_durations(request(deadline, arrived_at), now), other_now)
    assert got.deadline == pytest.approx(other_now + (deadline - now))
    assert got.arrived_at == pytest.approx(other_now - (now - arrived_at))
    assert got.prompt == (1, 2)


def test_no_deadline_stays_none() -> None:
    got = from_durations(to_durations(request(None, None), 5.0), 99.0)
    assert (got.deadline, got.arrived_at) == (None, None)


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_what_is_no_duration_is_refused(value: float) -> None:
    for sent in (request(value, None), request(None, value)):
        with pytest.raises(FrameError):
            from_durations(sent, 1.0)
