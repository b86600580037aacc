"""The disk tier, driven: blocks are written behind, read for a fetch, and known from the start.

`store.disk.DiskTier` has the files, `core.tiers.SlowerTier` decides what is written when.
Nothing that a disk does ends anything but the block that it concerns.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from antiphon.core.tiers import Slot
from antiphon.live.slices import slices
from antiphon.store.disk import (
    Appended,
    DiskMiss,
    DiskRefusal,
    DiskTier,
    NotAppended,
    Verified,
)
from antiphon.store.record import Page, RecordedBlock
from antiphon.types import BlockKey, KvChange, OfferedPage, Tier, TierStats
from antiphon.wire import QuietLog

from .host_memory import HeldBlock, HostBlocks
from .written_behind import WrittenBehind

_TROUBLE = {
    DiskRefusal.FULL: (
        "the disk has no room; make some, or lower store.disk_bytes (--store-disk). It is tried "
        "again"
    ),
    DiskRefusal.FAILED: (
        "it can't be written: see that the disk of store.dir is there and writable. It is tried "
        "again"
    ),
    DiskRefusal.FOLDER_GONE: (
        "the folder of store.dir was deleted. Restart the store (`antiphon restart store`, or "
        "`antiphon store`) to begin a new one"
    ),
    DiskRefusal.TOO_LARGE: (
        "a block is larger than all that may be there: raise store.disk_bytes (--store-disk)"
    ),
    DiskRefusal.UNRECORDABLE: "a name is longer than a record has room for",
}
"""What can be done about it; other refusals are counted, and no trouble."""

_DELETED = (
    "files of the disk tier were deleted while the store runs, and the blocks in them are lost: "
    "leave the folder of store.dir to the store, and empty it with `antiphon kv clear --all`"
)
_log = logging.getLogger(__name__)
_Outcome = Appended | NotAppended


class DiskBlocks(WrittenBehind[list[_Outcome]]):
    """Which blocks are on disk, as far as it was said. `run` finds what earlier lives left, then
    writes, until cancelled.
    """

    def __init__(
        self,
        tier: DiskTier,
        host: HostBlocks,
        *,
        note: Callable[[KvChange], None],
        recovered: Callable[[BlockKey], None] = lambda key: None,
    ) -> None:
        """`recovered` hears of each block of an earlier life, right before `note` does."""
        super().__init__(Tier.DISK, host, note=note)
        self._tier = tier
        self._recovered = recovered
        self._quiet = QuietLog(_log, host.clock)

    async def run(self) -> None:
        """See the class."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._writer, self._tier.recover)
        async for part in slices(found):
            for record in part:
                if self._tier.block(record.key) is not None:  # it may have been cleared meanwhile
                    if record.key not in self.blocks:
                        self._recovered(record.key)
                    self.blocks.found(record.key)
        await super().run()

    def abandon(self) -> None:
        """Instead of `run` and `close`: nothing was written, and nothing will be.

        Waits for nothing, so that it may be called on the event loop: no call is under way in the
        tier, and no segment was begun that would be flushed.
        """
        self._tier.close()
        self._end_threads()

    async def close(self) -> None:
        """Once `run` is over: flush, and let go of the folder. What still runs is told to end."""
        await asyncio.to_thread(self._tier.close)
        self._end_threads()

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def record(self, key: BlockKey) -> RecordedBlock | None:
        """What is known of a block that is here."""
        return self._tier.block(key) if key in self.blocks else None

    async def fill(self, record: RecordedBlock, slot: Slot) -> tuple[OfferedPage, ...] | None:
        """Read a block into a slot that is the caller's; None: it could not be had."""
        misses: list[DiskMiss] = []

        def read(into: Sequence[Page]) -> bool:
            miss = self._tier.read(record.key, into)
            misses.extend([miss] if miss is not None else [])
            return miss is None

        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._reader, self._host.memory.fill, slot, read)
        pages = await asyncio.shield(work)
        for miss in misses:
            self._missed(record.key, miss)
        if DiskMiss.ABSENT in misses:
            await self.lose_deleted()
        return pages

    def _missed(self, key: BlockKey, miss: DiskMiss) -> None:
        if miss is not DiskMiss.CLOSED:
            self.blocks.gone([key])
        if miss in (DiskMiss.DAMAGED, DiskMiss.FAILED):
            what = "damaged" if miss is DiskMiss.DAMAGED else "unreadable"
            self._quiet.trouble(
                "a block on disk is %s, and forgotten: look at the disk of store.dir", what
            )

    async def lose_deleted(self) -> frozenset[BlockKey]:
        """Forget what lay in files that somebody deleted behind the store's back; returns it."""

        def lose() -> tuple[tuple[BlockKey, ...], bool]:
            return self._tier.lose_deleted(), self._tier.folder_is_gone

        loop = asyncio.get_running_loop()
        lost, all_gone = await asyncio.shield(loop.run_in_executor(self._reader, lose))
        async for part in slices(lost):
            self.blocks.gone(part)
        if lost and all_gone:
            self._not_kept(DiskRefusal.FOLDER_GONE)
        elif lost:
            self._quiet.trouble(_DELETED)
        return frozenset(lost)

    async def remove(self, keys: Sequence[BlockKey]) -> None:
        """Forget these for good, after what is being written now."""
        await self.clear(None, keys)

    # ── for operators ────────────────────────────────────────────────────────────────────────

    async def clear(self, tenant: bytes | None, keys: Sequence[BlockKey] | None) -> int:
        """Forget these for good, or with neither all; how many it were."""
        loop = asyncio.get_running_loop()
        if keys is None:
            work = loop.run_in_executor(self._writer, self._tier.clear, tenant)
        else:
            mine = [key for key in keys if tenant is None or self._is_of(key, tenant)]
            work = loop.run_in_executor(self._writer, self._tier.remove, mine)
        gone = await asyncio.shield(work)
        async for part in slices(gone):
            self.blocks.gone(part)
        return len(gone)

    async def verify(self, keys: Sequence[BlockKey] | None) -> Verified:
        """Read again and compare; what is wrong is forgotten."""
        loop = asyncio.get_running_loop()
        lost = await self.lose_deleted()
        work = loop.run_in_executor(self._reader, self._tier.verify, keys)
        verified = await asyncio.shield(work)
        self.blocks.gone(verified.forgotten)
        gone = [key for key in (lost if keys is None else keys) if key in lost]
        return Verified(verified.checked + len(gone), (*gone, *verified.forgotten))

    def stats(self) -> TierStats:
        """Counts, with what was never handed to the disk."""
        stats = self._tier.stats()
        return replace(stats, dropped=(*stats.dropped, *self._dropped()))

    def _is_of(self, key: BlockKey, tenant: bytes) -> bool:
        record = self._tier.block(key)
        return record is not None and record.tenant == tenant

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def _write(self, blocks: Sequence[HeldBlock]) -> list[_Outcome]:
        return [
            self._tier.append(one.sealed.record, one.pages, one.sealed.checksums) for one in blocks
        ]

    def _wrote(self, blocks: Sequence[HeldBlock], result: list[_Outcome]) -> None:
        for one, outcome in zip(blocks, result, strict=True):
            self.blocks.gone(outcome.evicted)
            match outcome:
                case Appended() | NotAppended(reason=DiskRefusal.KNOWN):
                    self.blocks.found(one.sealed.record.key)
                case NotAppended(reason) if reason in _TROUBLE:
                    self._not_kept(reason)
                case _:
                    pass

    def _not_kept(self, reason: DiskRefusal) -> None:
        self._quiet.trouble("blocks are not kept on disk: %s", _TROUBLE[reason])
