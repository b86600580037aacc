"""S3-FIFO: most blocks are wanted once, so a small queue lets them go before they cost much.

Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023,
algorithm 1.
"""

from collections import OrderedDict
from dataclasses import dataclass

from antiphon.types import BlockKey

from .ranked_keys import RankedKeys

_MOST_USES = 3


@dataclass(slots=True, eq=False)
class _Place:
    number: int
    """In its queue: the lower, the earlier it came."""
    in_main: bool
    uses: int = 0


class S3Fifo:
    """A small queue for what is new, a main one for what was wanted again, and ghosts.

    A block at the end of the small queue goes to the main one if it was used more than `uses`
    times meanwhile, else it leaves and its key is remembered: if it comes again soon, it comes to
    the main queue. A block at the end of the main queue goes round once for each use.

    Queues are ordered by number; only idle blocks are looked at, so that a chain is eaten from its
    end and its beginning keeps its place.
    """

    def __init__(self, *, small_share: float = 0.1, uses: int = 1, ghosts: float = 1.0) -> None:
        """`small_share` of the blocks are in the small queue; `ghosts` keys a block are kept."""
        self._small_share = small_share
        self._uses = uses
        self._ghosts_a_block = ghosts
        self._number = 0
        self._places: dict[BlockKey, _Place] = {}
        self._small = 0
        self._idle_small = RankedKeys()
        self._idle_main = RankedKeys()
        self._ghosts: OrderedDict[BlockKey, None] = OrderedDict()

    def add(self, key: BlockKey, position: int) -> None:
        """See `EvictionPolicy`."""
        known = key in self._ghosts
        if known:
            del self._ghosts[key]
        self._number += 1
        self._places[key] = _Place(self._number, in_main=known)
        self._small += not known

    def use(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        place = self._places[key]
        place.uses = min(place.uses + 1, _MOST_USES)

    def idle(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        place = self._places[key]
        (self._idle_main if place.in_main else self._idle_small).put(key, place.number)

    def busy(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        self._idle_small.discard(key)
        self._idle_main.discard(key)

    def victim(self) -> BlockKey | None:
        """See `EvictionPolicy`."""
        while self._small_is_full() or not self._idle_main:
            key = self._idle_small.lowest()
            if key is None:
                break
            if self._places[key].uses <= self._uses:
                return key
            self._move_to_main(key)
        while (key := self._idle_main.lowest()) is not None and self._places[key].uses:
            self._places[key].uses -= 1
            self._to_the_back(key)
        return key

    def remove(self, key: BlockKey, *, evicted: bool) -> None:
        """See `EvictionPolicy`."""
        self.busy(key)
        place = self._places.pop(key)
        self._small -= not place.in_main
        if evicted and not place.in_main:
            self._ghosts[key] = None
        while len(self._ghosts) > self._ghosts_a_block * len(self._places):
            self._ghosts.popitem(last=False)

    def _small_is_full(self) -> bool:
        return self._small > self._small_share * len(self._places)

    def _move_to_main(self, key: BlockKey) -> None:
        self._idle_small.discard(key)
        self._small -= 1
        place = self._places[key]
        place.in_main, place.uses = True, 0
        self._to_the_back(key)

    def _to_the_back(self, key: BlockKey) -> None:
        self._number += 1
        self._places[key].number = self._number
        self._idle_main.put(key, self._number)
