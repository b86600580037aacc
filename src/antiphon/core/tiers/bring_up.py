"""A caller's way through a chain of blocks that are not all in the host tier.

    turn 1: blocks 0–7, of which 3 and 4 are on disk    ──► load 3, 4; hold 0–7
    turn 2: blocks 8–15, of which 9 is on its way       ──► wait for it; hold 8–15
    turn 3: blocks 16–23, of which 18 is nowhere        ──► load 16, 17; hold 16, 17; the end

A prefix with a gap is of no use: what lies behind a block that can't be had is not read. Turns are
short, so that callers share a disk, and a short prefix does not wait for a long one.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import takewhile

from antiphon.types import BlockKey, Tier

BLOCKS_A_TURN = 8
LOCATE_SHARE = 0.75
"""Of the time for a fetch: so long the store may bring blocks up from slower tiers. The rest is for
the copy."""


@dataclass(frozen=True, slots=True)
class Load:
    """Read this block, the child of `parent`, from that tier into the host tier."""

    key: BlockKey
    parent: BlockKey | None
    tier: Tier


@dataclass(frozen=True, slots=True)
class Turn:
    """The next blocks: `begin` loads that nobody has begun, in order, until one can't be; then wait
    for the loads of `missing`, and hold `keys`."""

    keys: tuple[BlockKey, ...]
    missing: tuple[BlockKey, ...]
    begin: tuple[Load, ...]


class BringUp:
    """Of one caller. Ask for the `next_turn`, carry it out, and say what was `held`."""

    def __init__(self, keys: Sequence[BlockKey], after: BlockKey | None) -> None:
        """`after` is the block that the first key continues."""
        self._keys = keys
        self._before = (after, *keys[:-1])
        self._at = 0
        self._over = not keys

    def beyond(self, near: Callable[[BlockKey], bool]) -> Sequence[BlockKey]:
        """Those that the remote tier is to be asked about: from the first on that is not `near`."""
        return self._keys[len(list(takewhile(near, self._keys))) :]

    def next_turn(
        self, where: Callable[[BlockKey], Tier | None], loading: Container[BlockKey]
    ) -> Turn | None:
        """What to do next; None: nothing. `where`: the fastest tier that has a block (None: none
        has); `loading`: blocks that are on their way for others."""
        return None if self._over else self._turn(self._at, where, loading)

    def turn_after(
        self, where: Callable[[BlockKey], Tier | None], loading: Container[BlockKey]
    ) -> Turn | None:
        """What `next_turn` would be if the present one came to a good end; None: nothing."""
        at = self._at + BLOCKS_A_TURN
        return None if self._over or at >= len(self._keys) else self._turn(at, where, loading)

    @property
    def left(self) -> Sequence[BlockKey]:
        """The blocks of this turn and of those behind it."""
        return self._keys[self._at :]

    def _turn(
        self,
        at: int,
        where: Callable[[BlockKey], Tier | None],
        loading: Container[BlockKey],
    ) -> Turn:
        keys = tuple(self._keys[at : at + BLOCKS_A_TURN])
        parents = self._before[at : at + BLOCKS_A_TURN]
        missing: list[BlockKey] = []
        begin: list[Load] = []
        for key, parent in zip(keys, parents, strict=True):
            tier = where(key)
            if tier is Tier.HOST:
                continue
            if key not in loading:
                if tier is None:
                    break
                begin.append(Load(key, parent, tier))
            missing.append(key)
        return Turn(keys, tuple(missing), tuple(begin))

    def held(self, count: int) -> None:
        """So many of the turn's first blocks are there, and stay. Mutates."""
        turn = min(BLOCKS_A_TURN, len(self._keys) - self._at)
        self._at += turn
        self._over = count < turn or self._at >= len(self._keys)
