"""What a search needs of whoever sends the load."""

from collections.abc import Sequence
from typing import Protocol

from antiphon.errors import PeerError
from antiphon.types import CallError, CallRecord, Seconds
from antiphon.workload import plural

_NOT_REACHED = (CallError.UNREACHABLE, CallError.UNSENT, CallError.ABANDONED)


class Measure(Protocol):
    """One run against a server."""

    async def __call__(self, rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        """Send calls at that rate for so long; the records of all of them, once all have ended.

        Times count from the run's start. Each run draws other calls than the ones before it, as
        the calls of runs at one rate are added up. A run that leaves a queue behind has to wait
        for its end, or the next one would be measured with it.
        """
        ...


def answered(records: Sequence[CallRecord]) -> Sequence[CallRecord]:
    """The records, if anybody was there to make them. Raises `PeerError` if nobody was.

    A server that is gone would otherwise be measured as one whose goodput is 0.
    """
    if any(record.error not in _NOT_REACHED for record in records):
        return records
    lost = [record for record in records if record.error is CallError.UNREACHABLE]
    if lost:
        why = lost[-1].message or "is it up?"
        raise PeerError(f"none of {plural(len(records), 'call')} reached the server: {why}")
    return records
