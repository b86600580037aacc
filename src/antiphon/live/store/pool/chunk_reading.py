"""One caller's way through blocks that peers have: at which level the next are read."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from antiphon.core.store_pool import Chosen, FetchTerms, LevelBook, Sender
from antiphon.core.tiers import BLOCKS_A_TURN
from antiphon.types import BlockKey, Seconds

_QUICK_S: Seconds = 0.5
"""For a turn at a fixed level. Of two that take longer both may be late, and count as failures."""


class ChunkReading:
    """Implements `Reading`. Remembers the worst that was read so far, since KV behind lossy KV is
    worth no more than that.

    A peer that was too slow to be read from is measured anew once that is long ago: nothing else
    would say that it is faster now.
    """

    def __init__(
        self,
        book: LevelBook,
        terms: FetchTerms,
        *,
        sender: Callable[[BlockKey], Sender],
        clock: Callable[[], Seconds],
    ) -> None:
        self.looks_ahead = book.adapts
        self._book = book
        self._sender = sender
        self._clock = clock
        self._terms = book.terms(terms, clock())
        self._rank = 0
        self._level: str | None = None

    def choose(self, keys: Sequence[BlockKey], on_way: int = 0) -> Chosen:
        """See `Reading`. What is on its way is taken to come at the level that was chosen last, and
        what is chosen now to begin behind it, if it is answered by then."""
        sender, begins_at = self._sender(keys[0]), self._clock()
        if sender.measured:
            level = self._level or self._book.latest(sender.name)
            moving_s = on_way * self._book.block_bytes(level) / sender.bytes_per_s
            begins_at += moving_s
            sender = replace(sender, answer_s=max(0.0, sender.answer_s - moving_s))
        chosen = self._book.choose(len(keys), self._terms, self._rank, sender, begins_at)
        if not chosen.blocks and sender.old:
            again = replace(sender, measured=False)
            chosen = self._book.choose(len(keys), self._terms, self._rank, again, begins_at)
        self._rank = max(self._rank, chosen.rank)
        if chosen.blocks:
            self._level = chosen.level
        return chosen

    def keeps_up(self, key: BlockKey) -> bool:
        """See `Reading`. Who chooses by time knows of each turn whether it is worth it."""
        if self._book.adapts:
            return True
        sender = self._sender(key)
        turn_bytes = BLOCKS_A_TURN * self._book.block_bytes(self._book.latest(sender.name))
        return turn_bytes <= _QUICK_S * sender.bytes_per_s

    def left(self, blocks: int) -> None:
        """See `Reading`."""
        self._book.computed_blocks += blocks
