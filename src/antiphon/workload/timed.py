"""Sessions and when they begin: a workload and its arrivals put together."""

import math
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Protocol, runtime_checkable

from antiphon.errors import UsageError
from antiphon.types import Seconds

from .arrivals import Arrivals, OwnTimes
from .sessions import TimedSession, Workload

_SAMPLE = 500


@runtime_checkable
class TimedWorkload(Protocol):
    """A workload that may know when its sessions began: a trace, or a file with times."""

    def has_times(self) -> bool:
        """Whether it does. May read the file's beginning, and raise `UsageError`."""
        ...

    def timed_sessions(self, seed: int) -> Iterator[TimedSession]:
        """Sessions in order of time."""
        ...

    def own_rate_per_s(self, seed: int) -> float | None:
        """Sessions a second on average; None if all come at once."""
        ...


@runtime_checkable
class FileWorkload(Protocol):
    """A workload made of a user's file, in which anything may be wrong."""

    def check_file(self, seed: int, *, own_times: bool) -> None:
        """Read it to its end. Raises `UsageError` for the first thing that is wrong.

        `own_times`: whether its sessions need times.
        """
        ...


def timed(
    workload: Workload,
    arrivals: Arrivals | OwnTimes,
    *,
    seed: int,
    limit: int | None = None,
    duration_s: Seconds = math.inf,
) -> Iterator[TimedSession]:
    """Sessions in order of time: the first `limit`, and only those before `duration_s`.

    Ends when the workload does; may go on without end. Made as they are asked for. Raises
    `UsageError`, at once, for the own times of a workload that has none, and for a file with
    anything wrong in it: it is read once before, so that no run ends in the middle.
    """
    if isinstance(workload, FileWorkload):
        workload.check_file(seed, own_times=isinstance(arrivals, OwnTimes))
    match arrivals:
        case OwnTimes():
            begun = _at_own_times(_with_times(workload), arrivals, seed)
        case _:
            pairs = zip(arrivals.times(seed), workload.sessions(seed), strict=False)
            begun = (TimedSession(at_s, session) for at_s, session in pairs)
    return islice(takewhile(lambda one: one.at_s < duration_s, begun), limit)


def has_own_times(workload: Workload) -> bool:
    """Whether `OwnTimes` can be its arrivals. Raises `UsageError` for a file that can't be read."""
    return isinstance(workload, TimedWorkload) and workload.has_times()


def calls_per_session(workload: Workload, seed: int) -> float:
    """The mean over the first sessions: what turns a rate of sessions into one of calls."""
    turns = [len(session.turns) for session in islice(workload.sessions(seed), _SAMPLE)]
    if not turns:
        raise UsageError(f"{workload.description}: there are no sessions: nothing can be sent")
    return sum(turns) / len(turns)


def _with_times(workload: Workload) -> TimedWorkload:
    if not isinstance(workload, TimedWorkload):
        raise UsageError(
            "arrivals trace: the workload has no times of its own: choose poisson or another kind, "
            "or a workload made of a file (trace, jsonl)"
        )
    return workload


def _at_own_times(workload: TimedWorkload, arrivals: OwnTimes, seed: int) -> Iterator[TimedSession]:
    speed = arrivals.speed
    if arrivals.rate_per_s is not None:
        own_rate = workload.own_rate_per_s(seed)
        speed = arrivals.rate_per_s / own_rate if own_rate else 1.0
    for one in workload.timed_sessions(seed):
        yield TimedSession(one.at_s / speed, one.session)
