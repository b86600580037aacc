"""The host tier's bytes: a region that workers copy blocks out of, cut into slots of one block.

What runs on threads says so; all else on the event loop. Which block lies in which slot is
`core.tiers.HostTier`'s decision: whoever writes to a slot has it from there.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from antiphon.core.store_joining import Tenancy, block_bytes, blocks_within, pages_a_block
from antiphon.core.store_pool import PooledHostTier
from antiphon.core.tiers import Slot
from antiphon.store.record import Page, RecordedBlock
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import BlockKey, KvShape, LeaseId, OfferedPage, PagePull, Seconds


@dataclass(frozen=True, slots=True)
class SealedBlock:
    """What lies in a slot, and how a reader knows that it still does."""

    record: RecordedBlock
    pages: tuple[OfferedPage, ...]

    @property
    def checksums(self) -> tuple[int, ...]:
        """XXH3-64 of each page."""
        return tuple(page.checksum for page in self.pages)


class HostMemory:
    """As many slots as `memory_bytes` holds. Memory is taken from the system as blocks come."""

    def __init__(self, tenancy: Tenancy, memory_bytes: int) -> None:
        """Raises `UsageError`: pages that can't be exchanged, or a system that has no memfd."""
        self.slots = blocks_within(tenancy.kv, memory_bytes)
        self.slot_bytes = block_bytes(tenancy.kv)
        self.slot_pages = pages_a_block(tenancy.kv)
        self.region = OwnedRegion(
            replace(tenancy.kv, pages=self.slots * self.slot_pages), commit=False
        )
        self._table = self.region.content.reshape(-1, tenancy.kv.page_bytes)
        self._sealed: dict[Slot, SealedBlock] = {}

    @property
    def shape(self) -> KvShape:
        """The region's."""
        return self.region.shape

    def sealed(self, slot: Slot) -> SealedBlock:
        """What was sealed there last. A slot that the host tier shows has been."""
        return self._sealed[slot]

    def seal(self, slot: Slot, record: RecordedBlock, pages: Sequence[OfferedPage]) -> None:
        """Remember what a thread has put there."""
        self._sealed[slot] = SealedBlock(record, tuple(pages))

    def pages(self, slot: Slot) -> Sequence[Page]:
        """The slot's bytes, page by page, in place."""
        first = slot * self.slot_pages
        return list(self._table[first : first + self.slot_pages])

    def block(self, slot: Slot) -> npt.NDArray[np.uint8]:
        """The slot's bytes as one array, in place: its pages follow each other."""
        first = slot * self.slot_bytes
        return self.region.content[first : first + self.slot_bytes]

    # ── on threads ───────────────────────────────────────────────────────────────────────────

    def copy_in(
        self, source: MappedRegion, slot: Slot, pages: Sequence[OfferedPage]
    ) -> tuple[OfferedPage, ...] | None:
        """Copy a worker's block into a slot that is the caller's. None: it could not be had.

        On a thread; without the interpreter lock.
        """
        targets = self._numbers(slot)
        pulls = [PagePull(page, target) for page, target in zip(pages, targets, strict=True)]
        if not self._back(slot) or not all(source.pull(pulls)):
            return None
        return self.region.seal(targets)

    def fill(
        self, slot: Slot, read: Callable[[Sequence[Page]], bool]
    ) -> tuple[OfferedPage, ...] | None:
        """Let `read` fill a slot that is the caller's; None: it said that it could not. On a
        thread."""
        targets = self._numbers(slot)
        if not self._back(slot):
            return None
        self.region.begin_write(targets)
        return self.region.seal(targets) if read(self.pages(slot)) else None

    def intact(self, slots: Sequence[Slot]) -> list[bool]:
        """Which of these still hold what was sealed there. They must stay meanwhile."""
        return [all(map(self.region.intact, self._sealed[slot].pages)) for slot in slots]

    def _back(self, slot: Slot) -> bool:
        return self.region.back(slot * self.slot_pages, self.slot_pages)

    def _numbers(self, slot: Slot) -> range:
        first = slot * self.slot_pages
        return range(first, first + self.slot_pages)


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A block that stays in its slot until its lease is released."""

    lease: LeaseId
    slot: Slot
    sealed: SealedBlock
    pages: Sequence[Page]


@dataclass(frozen=True, slots=True)
class HostBlocks:
    """The host tier and its bytes, for the store's own work."""

    tier: PooledHostTier
    memory: HostMemory
    clock: Callable[[], Seconds]

    def hold(self, key: BlockKey, holder: str) -> HeldBlock | None:
        """Keep it where it is, without a time limit; None: it is not there."""
        lease = LeaseId(secrets.token_hex(16))
        for slot in self.tier.hold([key], lease, holder=holder):
            return HeldBlock(lease, slot, self.memory.sealed(slot), self.memory.pages(slot))
        return None

    def hold_exact(self, key: BlockKey, holder: str) -> HeldBlock | None:
        """`hold`, for what is to be kept elsewhere: never a copy that was decoded from lossy KV."""
        held = self.hold(key, holder)
        if held is not None and held.sealed.record.lineage:
            self.release(held)
            return None
        return held

    def release(self, held: HeldBlock) -> None:
        """It may go."""
        self.tier.release(held.lease, self.clock())
