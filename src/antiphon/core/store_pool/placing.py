"""Blocks that are to be copied to their homes, by and by: bounded, and never in a put's way.

A block that waits stays where it is. What finds no room here, or whose home goes, is not lost: it
is read from where it lies, until it is evicted there.
"""

from collections.abc import Container

from antiphon.types import BlockKey, StoreName

MOST_WAITING = 16_384
BLOCKS_AT_ONCE = 64
"""Of one home, in one message."""


class Placing:
    """First in, first out for each home; homes take turns. Mutable."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self.dropped_full = 0
        """Blocks that there was no room for."""
        self._most_waiting = most_waiting
        self._of: dict[StoreName, dict[BlockKey, None]] = {}
        self._home: dict[BlockKey, StoreName] = {}

    def __len__(self) -> int:
        return len(self._home)

    def offer(self, key: BlockKey, home: StoreName) -> None:
        """The block is here and should be at `home`. Mutates."""
        if self._home.get(key) == home:
            return
        self.discard(key)
        if len(self._home) >= self._most_waiting:
            self.dropped_full += 1
            return
        self._home[key] = home
        self._of.setdefault(home, {})[key] = None

    def discard(self, key: BlockKey) -> None:
        """It is there, or not here any more. Mutates."""
        home = self._home.pop(key, None)
        if home is not None:
            waiting = self._of[home]
            del waiting[key]
            if not waiting:
                del self._of[home]

    def forget(self, home: StoreName) -> None:
        """That node is gone. Mutates."""
        for key in list(self._of.get(home, ())):
            self.discard(key)

    def take(self, busy: Container[StoreName] = ()) -> tuple[StoreName, list[BlockKey]] | None:
        """The home whose turn it is, none of `busy`, and blocks that it is to be told of; None:
        nothing waits for another. Mutates: what is taken waits no more."""
        home = next((home for home in self._of if home not in busy), None)
        if home is None:
            return None
        waiting = self._of.pop(home)
        taken = [key for key, _ in zip(waiting, range(BLOCKS_AT_ONCE), strict=False)]
        for key in taken:
            del waiting[key], self._home[key]
        if waiting:
            self._of[home] = waiting
        return home, taken
