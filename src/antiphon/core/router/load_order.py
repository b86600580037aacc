"""Workers in the order of their load, for whoever needs the first few of many."""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from antiphon.types import Seconds, WorkerId


class Rank(NamedTuple):
    """A total order: the least first."""

    busy_s: Seconds
    """Until it could begin with a newcomer, and a step of what decodes there."""
    requests: int
    chosen: int
    worker: WorkerId


class LoadOrder:
    """Mutable. `put` and `least` cost O(log) of the number of workers, on average.

    A heap of ranks; those that have changed stay in it until they come up, or until they outnumber
    the others.
    """

    def __init__(self) -> None:
        self._heap: list[Rank] = []
        self._ranks: dict[WorkerId, Rank] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def put(self, rank: Rank) -> None:
        """This worker's rank is now that. Mutates."""
        if self._ranks.get(rank.worker) == rank:
            return
        self._ranks[rank.worker] = rank
        heappush(self._heap, rank)
        if len(self._heap) > 2 * len(self._ranks) + 64:
            self._heap = list(self._ranks.values())
            heapify(self._heap)

    def remove(self, worker: WorkerId) -> None:
        """The worker is not among them any more. Mutates; fine if it never was."""
        self._ranks.pop(worker, None)

    def least(self, most: int) -> list[WorkerId]:
        """The first so many, or all. What it shows does not change."""
        heap, ranks = self._heap, self._ranks
        first: list[Rank] = []
        while heap and len(first) < most:
            rank = heappop(heap)
            # A rank may have been put twice: equal ones come up in a row.
            if ranks.get(rank.worker) == rank and (not first or first[-1] != rank):
                first.append(rank)
        for rank in first:
            heappush(heap, rank)
        return [rank.worker for rank in first]
