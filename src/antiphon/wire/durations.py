"""Points in time between processes: each has a clock of its own, so only durations cross.

In transit `Request.deadline` is the time left when it was sent, `arrived_at` the time since. What
the way takes is added to the deadline; on one host that is well below a millisecond.
"""

from dataclasses import replace
from math import isfinite

from antiphon.types import Request, Seconds

from .frame import FrameError


def to_durations(request: Request, now: Seconds) -> Request:
    """The request as it is sent at `now`, on the sender's clock."""
    deadline, arrived_at = request.deadline, request.arrived_at
    return replace(
        request,
        deadline=None if deadline is None else deadline - now,
        arrived_at=None if arrived_at is None else now - arrived_at,
    )


def from_durations(request: Request, now: Seconds) -> Request:
    """The request as it was received at `now`, on the receiver's clock. Raises `FrameError`."""
    left, age = request.deadline, request.arrived_at
    if not isfinite(left or 0.0) or not isfinite(age or 0.0):
        raise FrameError("a duration is not a number")
    return replace(
        request,
        deadline=None if left is None else now + left,
        arrived_at=None if age is None else now - age,
    )
