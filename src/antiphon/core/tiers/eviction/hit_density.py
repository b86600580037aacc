"""Hit density: a block is worth the hits that can be expected of it, for each moment it is kept.

Beckmann, Chen and Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI 2018.
How soon a block is wanted again, if at all, depends on how often it was wanted before: of the
blocks that were put once most never are, while a conversation that was continued is continued
again. So the policy measures it: for each number of uses (up to a limit), how many blocks were
wanted again at which age, ages being counted in blocks put and kept in classes of powers of two.
Unlike LHD it goes on watching blocks for a while after they went, so that it learns what it should
have kept; and it takes the density up to the best moment to give a block up (Gittins' index), not
up to the moment when blocks were given up so far.

Of blocks that were used equally often, the least recently used goes first; between these, the one
of the lowest density. With nothing measured yet, density falls with age: that is LRU.
"""

from collections import OrderedDict
from dataclasses import dataclass

from antiphon.types import BlockKey

from .ranked_keys import RankedKeys

_AGES = 32
"""Classes of ages: 0, 1, 2 to 3, 4 to 7 and so on."""
_LEARN_EVERY = 2048
"""Observations, of all levels together."""
_KEEP = 0.9
"""What an observation counts each time that others are learned from."""
_PRIOR_BLOCKS = 256.0
"""Made-up blocks of the first level; of the second, twice as many, and so on."""


@dataclass(slots=True, eq=False)
class _Seen:
    level: int
    """How often it was wanted, from 0 and at most the last level."""
    at: int
    """When it was wanted last, in blocks put."""


class ReuseAges:
    """At which age the blocks of one level are wanted again. Old observations fade."""

    def __init__(self, prior: float) -> None:
        """Begins with `prior` made-up blocks; half of them come back, at ages of all classes."""
        self._hits = [prior / 2 / _AGES] * _AGES
        self._blocks = prior
        self._density = [0.0] * _AGES
        self.learn(keep=1.0)

    def saw(self, age: int | None) -> None:
        """A block was wanted at this age; None: it was not, for as long as it was watched."""
        self._blocks += 1
        if age is not None:
            self._hits[_age_class(age)] += 1

    def density(self, age: int) -> float:
        """Expected hits for each block put while a block of this age is kept; as last learned.

        Between the beginnings of two classes it goes over evenly from one to the other.
        """
        here = _age_class(age)
        if not 0 < here < _AGES - 1:
            return self._density[here]
        beyond = age / (1 << (here - 1)) - 1
        return self._density[here] * (1 - beyond) + self._density[here + 1] * beyond

    def learn(self, keep: float) -> None:
        """Work out the densities anew, then let all observations count `keep` as much as before."""
        left = self._blocks
        kept: list[float] = []
        for age, hits in enumerate(self._hits):
            kept.append((left - hits / 2) * (1 << age))
            left -= hits
        for age in range(_AGES):
            hits = held = best = 0.0
            for end in range(age, _AGES):
                hits += self._hits[end]
                held += kept[end]
                best = max(best, hits / held)
            self._density[age] = best
        self._hits = [hits * keep for hits in self._hits]
        self._blocks *= keep


class HitDensity:
    """Blocks go in the order of their hit density."""

    def __init__(self, *, levels: int = 4, ghosts: float = 8.0) -> None:
        """`levels` numbers of uses are told apart, so many or more being one.

        `ghosts`: how many that went are watched, for each that is here. One takes some 250 bytes.
        """
        self._ghosts_a_block = ghosts
        self._puts = 0
        self._observations = 0
        self._blocks: dict[BlockKey, _Seen] = {}
        self._ghosts: OrderedDict[BlockKey, _Seen] = OrderedDict()
        self._idle = [RankedKeys() for _ in range(levels)]
        self._ages = [ReuseAges(_PRIOR_BLOCKS * (level + 1)) for level in range(levels)]

    def add(self, key: BlockKey, position: int) -> None:
        """See `EvictionPolicy`."""
        self._puts += 1
        seen = self._ghosts.pop(key, None)
        if seen is None:
            seen = _Seen(0, self._puts)
        else:
            self._wanted(seen)
        self._blocks[key] = seen

    def use(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        seen = self._blocks[key]
        idle = key in self._idle[seen.level]
        if idle:
            self._idle[seen.level].discard(key)
        self._wanted(seen)
        if idle:
            self._idle[seen.level].put(key, seen.at)

    def idle(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        seen = self._blocks[key]
        self._idle[seen.level].put(key, seen.at)

    def busy(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        self._idle[self._blocks[key].level].discard(key)

    def victim(self) -> BlockKey | None:
        """See `EvictionPolicy`."""
        oldest = [key for idle in self._idle if (key := idle.lowest()) is not None]
        return min(oldest, key=self._worth, default=None)

    def remove(self, key: BlockKey, *, evicted: bool) -> None:
        """See `EvictionPolicy`."""
        self.busy(key)
        seen = self._blocks.pop(key)
        if evicted:
            self._ghosts[key] = seen
        while len(self._ghosts) > self._ghosts_a_block * len(self._blocks):
            _, ghost = self._ghosts.popitem(last=False)
            self._saw(ghost.level, None)

    def _worth(self, key: BlockKey) -> tuple[float, int, BlockKey]:
        seen = self._blocks[key]
        return self._ages[seen.level].density(self._puts - seen.at), seen.at, key

    def _wanted(self, seen: _Seen) -> None:
        self._saw(seen.level, self._puts - seen.at)
        seen.level = min(seen.level + 1, len(self._ages) - 1)
        seen.at = self._puts

    def _saw(self, level: int, age: int | None) -> None:
        self._ages[level].saw(age)
        self._observations += 1
        if self._observations % _LEARN_EVERY == 0:
            for ages in self._ages:
                ages.learn(_KEEP)


def _age_class(age: int) -> int:
    return min(age.bit_length(), _AGES - 1)
