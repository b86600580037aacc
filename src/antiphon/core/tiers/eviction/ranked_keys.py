"""Keys in the order of a rank that changes now and then."""

from heapq import heapify, heappop, heappush
from typing import TypeAlias

from antiphon.types import BlockKey

Rank: TypeAlias = float
"""The lower, the sooner it goes; among equals the lower key."""


class RankedKeys:
    """A heap with lazy removal: every call is O(log n) amortised.

    What was removed stays in the heap until it surfaces, or until it outweighs the rest.
    """

    def __init__(self) -> None:
        self._rank: dict[BlockKey, Rank] = {}
        self._heap: list[tuple[Rank, BlockKey]] = []

    def __len__(self) -> int:
        return len(self._rank)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._rank

    def put(self, key: BlockKey, rank: Rank) -> None:
        """Add a key, or give it another rank."""
        self._rank[key] = rank
        heappush(self._heap, (rank, key))
        if len(self._heap) > 2 * len(self._rank) + 64:
            self._heap = [(rank, key) for key, rank in self._rank.items()]
            heapify(self._heap)

    def discard(self, key: BlockKey) -> None:
        """Take a key out; no effect if it is not in."""
        self._rank.pop(key, None)

    def lowest(self) -> BlockKey | None:
        """The key of the lowest rank; None: there are none."""
        while self._heap and self._rank.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][1] if self._heap else None
