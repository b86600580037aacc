"""Copies of blocks that their homes have, too: what goes before anything else, and what stays.

A node that has read a block from a peer has a copy of it in its own memory. Most such copies were
needed once: their slots are the first to be used again, before any block goes that may be the only
one in the pool. A copy that is *hot* is passed by: its reads would take more than a set share of a
node's bandwidth if they went over the network. A hand goes round as in CLOCK (Corbató 1968), so
that what is hot now but not later goes on a later round. Two bounds: as many copies of a block in
the pool as the rules say, and as many copies in a node as a share of its slots.
"""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.types import BlockKey, Seconds

_LOOKED_AT = 16
"""Hot copies that the hand passes by in one call; then the next goes, whatever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRules:
    """`hot_per_s`: a copy that is read more often here is hot. `most_copies`: so many a block,
    beside the one at home. `share`: of the node's slots, what hot copies may keep."""

    hot_per_s: float
    most_copies: int = 3
    share: float = 0.25


class Replicas:
    """Of one node. Mutable. `hits_per_s` and `copies` are asked of a block's heat here, and of how
    many other nodes have it in memory."""

    def __init__(
        self,
        rules: ReplicaRules,
        slots: int,
        *,
        hits_per_s: Callable[[BlockKey, Seconds], float],
        copies: Callable[[BlockKey], int],
    ) -> None:
        self._rules = rules
        self._most = int(slots * rules.share)
        self._hits_per_s = hits_per_s
        self._copies = copies
        self._keys: dict[BlockKey, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._keys

    def add(self, key: BlockKey) -> None:
        """The block's home has it, and so has this node. Mutates."""
        self._keys.setdefault(key, None)

    def discard(self, key: BlockKey) -> None:
        """It is no copy, or not here any more. Mutates."""
        self._keys.pop(key, None)

    def used(self, key: BlockKey) -> None:
        """It was read here: it goes after those that were not. Mutates."""
        if key in self._keys:
            del self._keys[key]
            self._keys[key] = None

    def is_hot(self, key: BlockKey, now: Seconds) -> bool:
        """Whether a copy of it is worth its slot here."""
        enough = self._copies(key) > self._rules.most_copies
        return not enough and self._hits_per_s(key, now) >= self._rules.hot_per_s

    def first_to_go(self, idle: Callable[[BlockKey], bool], now: Seconds) -> BlockKey | None:
        """The copy whose slot is used again next, among those that are `idle`; None: there is none
        that is not hot. Mutates the order. O(copies that are in use + 1)."""
        passed = 0
        for key in list(self._ahead()):
            if not idle(key):
                self.used(key)
            elif len(self._keys) <= self._most and self.is_hot(key, now):
                self.used(key)
                passed += 1
            else:
                return key
            if passed >= _LOOKED_AT:
                return None
        return None

    def _ahead(self) -> list[BlockKey]:
        """As many as one call may look at."""
        return [key for key, _ in zip(self._keys, range(4 * _LOOKED_AT), strict=False)]
