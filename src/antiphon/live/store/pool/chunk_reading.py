"""One caller's way through blocks that peers have: at which level the next are read."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from antiphon.core.store_pool import Chosen, FetchTerms, LevelBook
from antiphon.types import BlockKey, Seconds, StoreName


class Sender(NamedTuple):
    """Who would be asked for a block (empty: nobody). `bytes_per_s` None: not measured yet; `old`:
    measured long ago."""

    name: StoreName = StoreName("")
    bytes_per_s: float | None = None
    old: bool = False


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
        self._book = book
        self._sender = sender
        self._clock = clock
        self._terms = book.terms(terms, clock())
        self._rank = 0
        self._level: str | None = None

    def choose(self, keys: Sequence[BlockKey], on_way: int = 0) -> Chosen:
        """See `Reading`. What is on its way is taken to come at the level that was chosen last, and
        what is chosen now to begin behind it."""
        peer, speed, old = self._sender(keys[0])
        begins_at = self._clock()
        if speed is not None:
            level = self._level or self._book.latest(peer)
            begins_at += on_way * self._book.block_bytes(level) / speed
        chosen = self._book.choose(len(keys), self._terms, self._rank, speed, begins_at, peer)
        if not chosen.blocks and old:
            chosen = self._book.choose(len(keys), self._terms, self._rank, None, begins_at, peer)
        self._rank = max(self._rank, chosen.rank)
        if chosen.blocks:
            self._level = chosen.level
        return chosen

    def left(self, blocks: int) -> None:
        """See `Reading`."""
        self._book.computed_blocks += blocks
