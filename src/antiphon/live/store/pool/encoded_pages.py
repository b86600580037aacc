"""Memory that encoded blocks cross the network in: small pages, of which a block takes some.

The lender's are served to peers; the taker's are where they come, and from where they are decoded.
"""

import asyncio
from collections.abc import Sequence

from antiphon.store.transfer import OwnedRegion
from antiphon.types import KvShape, PageId

PAGE_BYTES = 8192
"""Half of one is wasted for each block."""
_LEAST_BLOCKS = 64


def pages_for(size_bytes: int) -> int:
    """How many pages hold so many bytes."""
    return -(-size_bytes // PAGE_BYTES)


def encoded_region(block_bytes: int, memory_bytes: int) -> OwnedRegion:
    """Memory for blobs, at least for a few dozen of blocks. It is taken from the system as it is
    used. Raises `UsageError`: the system has no memfd."""
    least = _LEAST_BLOCKS * pages_for(block_bytes)
    shape = KvShape(
        layout="encoded",
        page_tokens=1,
        block_tokens=1,
        page_bytes=PAGE_BYTES,
        pages=max(least, memory_bytes // PAGE_BYTES),
    )
    return OwnedRegion(shape, commit=False)


class EncodedInbox:
    """The taker's: pages are taken for a read, and given back once its blocks are decoded."""

    def __init__(self, block_bytes: int) -> None:
        self.region = encoded_region(block_bytes, 0)
        self._free = list(range(self.region.shape.pages))
        self._given = asyncio.Event()
        self._turn = asyncio.Lock()

    async def take(self, count: int) -> Sequence[PageId]:
        """So many pages, once there are: cancel it where that takes too long. Whoever came first
        is served first, however much it wants."""
        async with self._turn:
            while len(self._free) < count:
                self._given.clear()
                await self._given.wait()
            return [self._free.pop() for _ in range(count)]

    def give(self, pages: Sequence[PageId]) -> None:
        """Nothing is written to these any more."""
        self._free += pages
        self._given.set()

    def read(self, pages: Sequence[PageId], size_bytes: int) -> bytes:
        """A copy of what came. On a thread."""
        table = self.region.content.reshape(-1, PAGE_BYTES)
        return table[list(pages)].tobytes()[:size_bytes]
