"""One caller's way through blocks that peers have: at which level the next are read."""

from collections.abc import Callable, Sequence

from antiphon.core.store_pool import Chosen, FetchTerms, LevelBook
from antiphon.types import BlockKey, Seconds


class ChunkReading:
    """Implements `Reading`. Remembers the worst that was read so far, since KV behind lossy KV is
    worth no more than that. `speed`: of who would be asked for a block; None: not measured yet."""

    def __init__(
        self,
        book: LevelBook,
        terms: FetchTerms,
        *,
        speed: Callable[[BlockKey], float | None],
        clock: Callable[[], Seconds],
    ) -> None:
        self._book = book
        self._speed = speed
        self._clock = clock
        self._terms = book.terms(terms, clock())
        self._rank = 0

    def choose(self, keys: Sequence[BlockKey]) -> Chosen:
        """See `Reading`."""
        speed = self._speed(keys[0])
        chosen = self._book.choose(len(keys), self._terms, self._rank, speed, self._clock())
        self._rank = max(self._rank, chosen.rank)
        return chosen

    def left(self, blocks: int) -> None:
        """See `Reading`."""
        self._book.computed_blocks += blocks
