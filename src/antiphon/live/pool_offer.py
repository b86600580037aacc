"""What a worker's prefix cache has already, offered to a store that may not have it.

    a session begins ──► all that is named now ──┐
    a put was late   ──► its blocks            ──┴──► a slice at a time ──► WriteBack.offer

Blocks are put when they are computed, and never again: a store that has lost its memory since, or
had no room on its stream, would not get them however hot they are. So they are owed, and offered
while nobody waits for it. A store that has them says no more than that it knows them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from antiphon.types import BlockKey, BlockStored, Seconds

from .write_back import WriteBack

SLICE_BLOCKS = 64
SLICE_BYTES = 32 << 20
"""Sealing these keeps the event loop for about a millisecond, if nobody sealed them before."""
MAX_OWED = 2**18
"""Of more blocks the newest are not owed."""


def blocks_a_slice(block_bytes: int) -> int:
    """How many blocks of this size are one slice."""
    return max(1, min(SLICE_BLOCKS, SLICE_BYTES // max(1, block_bytes)))


class PoolOffer:
    """Offers through `write_back` a slice each `pace_s`, oldest first: a parent is older than its
    children, so that what the store gets has no gaps.

    `named` lists the keys of all blocks in the cache, oldest first. `block` says where one lies,
    None once it is evicted: it is asked in the turn of the event loop in which the pages are
    sealed. `on_broken` is called if a law was broken meanwhile. All on the event loop.
    """

    def __init__(
        self,
        write_back: WriteBack,
        named: Callable[[], Sequence[BlockKey]],
        block: Callable[[BlockKey], BlockStored | None],
        *,
        slice_blocks: int,
        pace_s: Seconds,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._write_back = write_back
        self._named = named
        self._block = block
        self._slice_blocks = slice_blocks
        self._pace_s = pace_s
        self._on_broken = on_broken
        self._owed: dict[BlockKey, None] = {}
        self._task: asyncio.Task[None] | None = None
        write_back.on_late = self.owe

    def __len__(self) -> int:
        """Blocks that are owed."""
        return len(self._owed)

    def session_began(self) -> None:
        """Owe all that is named now; what comes later is put when it comes. Mutates."""
        self._owed.clear()
        self.owe(self._named())

    def owe(self, keys: Iterable[BlockKey]) -> None:
        """Offer these when there is time. Mutates; never waits."""
        self._owed.update(dict.fromkeys(islice(keys, MAX_OWED - len(self._owed))))
        if self._owed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="pool-offer")
            self._task.add_done_callback(self._done)

    async def close(self) -> None:
        """Offer nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._owed:
            if not self._write_back.takes:
                self._owed.clear()  # the next session owes all again
                return
            if self._write_back.at_leisure:
                self._offer_slice()
            await asyncio.sleep(self._pace_s)

    def _offer_slice(self) -> None:
        """Without a pause between the look at the cache and the seal: a page that was evicted may
        be another's by now."""
        keys = list(islice(self._owed, self._slice_blocks))
        for key in keys:
            del self._owed[key]
        self._write_back.offer([block for block in map(self._block, keys) if block is not None])

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)
