"""What a node says of its blocks to the other nodes: only what it knows to be good.

    put here, or read from a peer and checked ──────────────────────────► said at once
    found on disk after a restart ──► unproven ── read and compared ────► said
                                          └────── wrong, or gone ───────► never said

A node that comes back with old files is checked, not believed, by itself first: an index says in a
moment what a disk needs minutes to read. Nodes of a pool say what lies in memory and on disk; what
they have from others, and what a remote tier has, is not theirs to say. A copy that was decoded
from lossy KV is never spoken of: it is for those of this node who asked for it.
"""

from collections.abc import Callable, Sequence

from antiphon.types import BlockKey, KvChange, Tier

from .pool_index import POOLED_TIERS


class Announced:
    """Of one life of a node. Mutable. `listen` hears what is said, in order."""

    def __init__(self, listen: Callable[[KvChange], None]) -> None:
        self._listen = listen
        self._unproven: dict[BlockKey, None] = {}
        self._inexact: dict[BlockKey, None] = {}

    @property
    def unproven(self) -> int:
        """Blocks that are not spoken of yet."""
        return len(self._unproven)

    def recovered(self, key: BlockKey) -> None:
        """An earlier life has left this block on disk: the next change that names it is of that
        copy. Mutates."""
        self._unproven[key] = None

    def inexact(self, key: BlockKey, there: bool) -> None:
        """Whether what comes to memory under this name next is a lossy copy. Mutates."""
        if there:
            self._inexact[key] = None
        else:
            self._inexact.pop(key, None)

    def changed(self, change: KvChange) -> bool:
        """A block came to a tier of this node, or left it; whether that was said. Mutates."""
        if change.tier not in POOLED_TIERS:
            return False
        if change.tier is Tier.DISK and change.key in self._unproven:
            if not change.stored:
                del self._unproven[change.key]
            return False
        if change.tier is Tier.HOST and change.key in self._inexact:
            if not change.stored:
                del self._inexact[change.key]
            return False
        self._listen(change)
        return True

    def to_prove(self, most: int) -> Sequence[BlockKey]:
        """The next blocks that are to be read and compared. Does not mutate."""
        return [key for key, _ in zip(self._unproven, range(most), strict=False)]

    def proven(self, keys: Sequence[BlockKey]) -> None:
        """These were read, and those that are still here are good. Mutates."""
        for key in keys:
            if key in self._unproven:
                del self._unproven[key]
                self._listen(KvChange(key, Tier.DISK, True))

    def says(self, key: BlockKey, tier: Tier) -> bool:
        """Whether a block that is on that tier is spoken of."""
        if tier not in POOLED_TIERS:
            return False
        return key not in (self._unproven if tier is Tier.DISK else self._inexact)
