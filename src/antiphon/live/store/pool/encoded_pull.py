"""Encoded blocks on their way from a peer: pulled into the inbox, decoded into their slots.

What comes is believed as far as its pages are what was lent, and its blob's checksum holds; all
else is a miss. Nothing of a lender's word sizes memory.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from antiphon.core.store_pool import LevelBook
from antiphon.core.tiers import Slot
from antiphon.live.store.host_memory import HostMemory
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import BlockKey, LentBlock, OfferedPage, PageId, PagePull, Seconds

from .block_coder import BlockCoder
from .encoded_pages import PAGE_BYTES, EncodedInbox, pages_for
from .pull_speed import Moving

Pages = tuple[OfferedPage, ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A block that is lent encoded, and the slot that it is for."""

    lent: LentBlock
    slot: Slot

    def wrong(self, slot_bytes: int) -> bool:
        """Whether no store may lend that."""
        size = self.lent.encoded_bytes
        return not 0 < size < slot_bytes or len(self.lent.pages) != pages_for(size)


@dataclass(frozen=True, slots=True)
class Pulled:
    """`came`: decoded, sealed in its slot. `tried` False: the peer was not asked, for there was no
    room here."""

    came: dict[BlockKey, Pages]
    tried: bool = True


class EncodedPull:
    """From one life of a peer. `client` is this one's from now on."""

    def __init__(
        self,
        client: PageClient,
        inbox: EncodedInbox,
        coder: BlockCoder,
        book: LevelBook,
        memory: HostMemory,
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._coder = coder
        self._book = book
        self._memory = memory

    async def close(self) -> None:
        """The peer is gone: what is under way comes to nothing."""
        await asyncio.to_thread(self._client.close)

    async def pull(
        self,
        blocks: Sequence[Encoded],
        level: str,
        timeout_s: Seconds,
        threads: Executor,
        moving: Moving,
    ) -> Pulled:
        """Those that came and are what was lent. Nothing is written any more when it returns."""
        began, count = time.monotonic(), sum(len(one.lent.pages) for one in blocks)
        try:
            async with asyncio.timeout(timeout_s):
                targets = await self._inbox.take(count)
        except TimeoutError:
            return Pulled({}, tried=False)
        left_s = max(0.001, timeout_s - (time.monotonic() - began))
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(threads, self._pull, blocks, targets, level, left_s, moving)
        try:
            pulled, decode_s, damaged = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        finally:
            self._inbox.give(targets)
        self._book.decoded(level, len(pulled.came), decode_s)
        if damaged:
            self._book.damaged(level, damaged)
        return pulled

    def _pull(
        self,
        blocks: Sequence[Encoded],
        targets: Sequence[PageId],
        level: str,
        timeout_s: Seconds,
        moving: Moving,
    ) -> tuple[Pulled, Seconds, int]:
        """On a thread. With how long decoding took it, and how many could not be decoded."""
        sources = [page for one in blocks for page in one.lent.pages]
        pulls = list(map(PagePull, sources, targets))
        good = moving.pull(self._client, pulls, timeout_s, PAGE_BYTES)
        decoding = time.thread_time()
        came: dict[BlockKey, Pages] = {}
        at = damaged = 0
        for one in blocks:
            end = at + len(one.lent.pages)
            if all(good[at:end]):
                sealed = self._decoded(one, targets[at:end], level)
                if sealed is None:
                    damaged += 1
                else:
                    came[one.lent.key] = sealed
            at = end
        return Pulled(came), time.thread_time() - decoding, damaged

    def _decoded(self, one: Encoded, pages: Sequence[PageId], level: str) -> Pages | None:
        data = self._inbox.read(pages, one.lent.encoded_bytes)
        into = self._memory.block(one.slot)
        return self._memory.fill(one.slot, lambda _: self._coder.decode(data, level, into))
