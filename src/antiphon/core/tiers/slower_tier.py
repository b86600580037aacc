"""Which blocks a slower tier has, and which are to be written to it, and when.

    nowhere ──offer──▶ waiting ──take──▶ being written ──wrote, found──▶ there ──gone──▶ nowhere
                          │
                          └── not in the host tier at its turn, or pruned: dropped

What waits is not held in memory: it may be evicted before its turn, and is dropped then. A full
queue takes nothing more, so that a disk that is slower than the traffic costs no memory.
"""

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import TypeVar

from antiphon.types import BlockKey, KvChange, Tier

MOST_WAITING = 4096
WRITTEN_AT_ONCE = 8
"""Blocks that are held in the host tier while they are written."""

Held = TypeVar("Held")


def tiers_to_write(
    came_from: Tier, there: Collection[Tier], *, at_home: bool = True
) -> tuple[Tier, ...]:
    """Of the slower tiers that there are, those that a block which is in the host tier from now on
    is offered to: the faster ones than where it came from, so that it is found nearer next time,
    and, if a worker put it, all. In a pool of stores it is the block's home that writes it to its
    disk, whoever else has a copy."""
    disk = (Tier.DISK,) if at_home else ()
    match came_from:
        case Tier.REMOTE | Tier.PEER:
            slower = disk
        case Tier.DISK | Tier.HOST:
            slower = ()
        case Tier.DEVICE:
            slower = (*disk, Tier.REMOTE)
    return tuple(tier for tier in slower if tier in there)


class SlowerTier:
    """Pure: writes nothing. `listen` hears of each block that comes, or goes.

    `most_blocks`: so many are said to be there; of more the oldest are not spoken of.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        listen: Callable[[KvChange], None],
        most_waiting: int = MOST_WAITING,
        most_blocks: int | None = None,
    ) -> None:
        self.dropped_full = 0
        """Offers that there was no room for."""
        self.dropped_gone = 0
        """Blocks that were not in the host tier any more at their turn."""
        self._tier = tier
        self._listen = listen
        self._most_waiting = most_waiting
        self._most_blocks = most_blocks
        self._there: dict[BlockKey, None] = {}
        self._waiting: dict[BlockKey, None] = {}
        self._writing: frozenset[BlockKey] = frozenset()

    # ── what is there ────────────────────────────────────────────────────────────────────────

    def __contains__(self, key: BlockKey) -> bool:
        """Whether the block was there when we last heard."""
        return key in self._there

    @property
    def keys(self) -> Collection[BlockKey]:
        """All that were there when we last heard, those first that came first. Valid until the
        next call of anything."""
        return self._there.keys()

    def found(self, key: BlockKey) -> None:
        """The block is there: written, or found. Mutates."""
        self._waiting.pop(key, None)
        if key in self._there:
            return
        if self._most_blocks is not None and len(self._there) >= self._most_blocks:
            self.gone([next(iter(self._there))])
        self._there[key] = None
        self._listen(KvChange(key, self._tier, True))

    def gone(self, keys: Iterable[BlockKey]) -> None:
        """These are not there any more. Mutates."""
        for key in keys:
            if key in self._there:
                del self._there[key]
                self._listen(KvChange(key, self._tier, False))

    # ── what is to be written ────────────────────────────────────────────────────────────────

    def offer(self, key: BlockKey) -> bool:
        """The block is in the host tier: it is to be written at its turn. Whether there is anything
        to write now. Mutates."""
        if key not in self._there and key not in self._waiting:
            if len(self._waiting) >= self._most_waiting:
                self.dropped_full += 1
            else:
                self._waiting[key] = None
        return bool(self._waiting)

    def prune(self, host: Container[BlockKey]) -> None:
        """What was cleared from the host tier does not wait any more, even if it comes back."""
        for key in [key for key in self._waiting if key not in host]:
            del self._waiting[key]

    def take(self, hold: Callable[[BlockKey], Held | None]) -> list[Held]:
        """The blocks whose turn it is, as `hold` gives them; None: it is in the host tier no more.
        They are being written until `wrote`. Mutates."""
        taken: list[Held] = []
        writing: list[BlockKey] = []
        while self._waiting and len(taken) < WRITTEN_AT_ONCE:
            key = next(iter(self._waiting))
            del self._waiting[key]
            held = hold(key)
            if held is None:
                self.dropped_gone += 1
            else:
                taken.append(held)
                writing.append(key)
        self._writing = frozenset(writing)
        return taken

    def wrote(self) -> None:
        """What was taken is not being written any more. Mutates."""
        self._writing = frozenset()

    @property
    def waiting(self) -> int:
        """Blocks that are to be written."""
        return len(self._waiting)

    def unsettled(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey]:
        """Which of these wait, or are being written."""
        return [key for key in keys if key in self._waiting or key in self._writing]
