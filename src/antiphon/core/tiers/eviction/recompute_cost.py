"""GreedyDual-Size-Frequency: what is cheap to compute again goes first.

Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy",
HP Labs HPL-98-69R1, 1998. All blocks have one size, so a block's worth is

    worth = age + uses * cost(position),    cost(position) = 1 + position / half_position

where `age` is the worth of the last victim: what has not been used since loses ground to it. The
attention of a block reads all blocks before it, so the cost grows with its position: at
`half_position` half of the work is attention.
"""

from collections import OrderedDict
from dataclasses import dataclass

from antiphon.types import BlockKey

from .ranked_keys import RankedKeys


@dataclass(slots=True, eq=False)
class _Worth:
    cost: float
    uses: int
    worth: float


class RecomputeCost:
    """Blocks go in the order of their worth. The uses of what went are remembered for a while."""

    def __init__(self, *, half_position: float = 256.0, ghosts: float = 4.0) -> None:
        """`ghosts`: how many keys that went are remembered, for each block that is here."""
        self._half_position = half_position
        self._ghosts_a_block = ghosts
        self._age = 0.0
        self._worths: dict[BlockKey, _Worth] = {}
        self._idle = RankedKeys()
        self._ghosts: OrderedDict[BlockKey, int] = OrderedDict()

    def add(self, key: BlockKey, position: int) -> None:
        """See `EvictionPolicy`."""
        uses = 1 + self._ghosts.pop(key, 0)
        cost = 1.0 + position / self._half_position
        self._worths[key] = _Worth(cost, uses, self._age + uses * cost)

    def use(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        one = self._worths[key]
        one.uses += 1
        one.worth = self._age + one.uses * one.cost
        if key in self._idle:
            self._idle.put(key, one.worth)

    def idle(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        self._idle.put(key, self._worths[key].worth)

    def busy(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        self._idle.discard(key)

    def victim(self) -> BlockKey | None:
        """See `EvictionPolicy`."""
        return self._idle.lowest()

    def remove(self, key: BlockKey, *, evicted: bool) -> None:
        """See `EvictionPolicy`."""
        self._idle.discard(key)
        one = self._worths.pop(key)
        if evicted:
            self._age = max(self._age, one.worth)
            self._ghosts[key] = one.uses
        while len(self._ghosts) > self._ghosts_a_block * len(self._worths):
            self._ghosts.popitem(last=False)
