"""Who is served next: class, then preempted ones, then urgency, then arrival. Nobody skips."""

from bisect import bisect_left
from collections.abc import Iterator

from antiphon.errors import BugError

from .sequence import Rank, SequenceState


def _rank(sequence: SequenceState) -> Rank:
    return sequence.rank


class WaitingQueue:
    """Sequences in order of service; the rank of a waiting sequence does not change."""

    def __init__(self) -> None:
        self._line: list[SequenceState] = []

    @property
    def head(self) -> SequenceState | None:
        """Who is served next."""
        return self._line[0] if self._line else None

    @property
    def head_to_keep(self) -> SequenceState | None:
        """Who is served next of those whose KV is not for others."""
        return next((one for one in self._line if one.owner.lease is None), None)

    def __iter__(self) -> Iterator[SequenceState]:
        """All that wait, in order of service."""
        return iter(self._line)

    def push(self, sequence: SequenceState) -> int:
        """Take a place by rank; returns how many are ahead."""
        place = bisect_left(self._line, sequence.rank, key=_rank)
        self._line.insert(place, sequence)
        return place

    def remove(self, sequence: SequenceState) -> None:
        """Take out one that waits."""
        place = bisect_left(self._line, sequence.rank, key=_rank)
        if self._line[place : place + 1] != [sequence]:
            raise BugError(f"{sequence.key} does not wait")
        del self._line[place]
