"""What a search needs of whoever sends the load."""

from collections.abc import Sequence
from typing import Protocol

from antiphon.errors import PeerError
from antiphon.types import CallError, CallRecord, Seconds


class Measure(Protocol):
    """One run against a server."""

    async def __call__(self, rate_per_s: float, duration_s: Seconds) -> Sequence[CallRecord]:
        """Send calls at that rate for so long; the records of all of them, once all have ended.

        Times count from the run's start. Each run draws other calls than the ones before it, as
        the calls of runs at one rate are added up.
        """
        ...


def answered(records: Sequence[CallRecord]) -> Sequence[CallRecord]:
    """The records, if anybody was there to make them. Raises `PeerError` if nobody was.

    A server that is gone would otherwise be measured as one whose goodput is 0.
    """
    if records and all(record.error is CallError.UNREACHABLE for record in records):
        raise PeerError(
            f"none of {len(records)} calls reached the server: {records[-1].message or 'is it up?'}"
        )
    return records
