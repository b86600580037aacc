"""Which block lies in which slot of the store's shared memory, who reads it, and what goes next.

    free ──begin_put──▶ writing ──end_put(good)──▶ visible ──evict──▶ free
                           │                        │ ▲
                           └──end_put(bad)──▶ free   leases, pins: never evicted

What is cleared is out of sight at once, but its slot stays until nobody writes or reads it:

    writing ──clear──▶ cancelled ──end_put──▶ free      visible ──clear──▶ leaving ──last lease──▶ free

`free + writing + visible + leaving == total`, always (a cancelled block counts as being written).

**What goes.** Only ends of chains: a block is never evicted before those that continue it, since a
prefix search finds nothing behind a gap. Among the ends, the tenant's policy decides. A victim costs
O(log n), so it is chosen when its slot is needed; there is no watermark.

**Whose.** A tenant at its quota gives up its own. Else a hand goes round the slots (as in the CLOCK
algorithm), and the tenant whose block lies under it gives up what its own policy says: everyone loses
in proportion to what he has, so that in the long run he has what he puts. Half of the memory, divided
by the tenants, is guaranteed: nobody who was there in the last ten minutes is brought below that by
another's puts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from antiphon.types import BlockKey, KvChange, LeaseId, Seconds, TierStats

from .eviction import PolicyFactory
from .held_block import Slot
from .tenant_account import TenantUse


class DeclineReason(StrEnum):
    """Why a block is not kept."""

    KNOWN = "known"
    """It is here, or being written."""
    QUOTA = "quota"
    """Its tenant has all it may have, and none of that can go now."""
    FULL = "full"
    """Nothing can go now."""
    LOOP = "loop"
    """It would be its own ancestor: no honest chain of hashes is."""


@dataclass(frozen=True, slots=True)
class Declined:
    """No slot, and nothing was changed."""

    reason: DeclineReason


class HostTier:
    """The slots of one memory. Pure: copies nothing, knows no clock. `now` never runs backwards.

    `listen` hears of each block that comes in sight or goes out of it, in order. Its owner must not
    be called from there.
    """

    def __init__(
        self,
        *,
        slots: int,
        policy: PolicyFactory,
        lease_ttl_s: Seconds,
        tenant_share: float = 1.0,
        max_leases: int = 4096,
        listen: Callable[[KvChange], None],
    ) -> None:
        """`tenant_share`: most of the slots that one tenant may have (at least one)."""
        raise NotImplementedError

    def begin_put(
        self,
        key: BlockKey,
        parent: BlockKey | None,
        tenant: bytes,
        now: Seconds,
        *,
        writer: str = "",
    ) -> Slot | Declined:
        """A slot to write the block to, evicting another block if need be.

        The slot is the caller's until `end_put`, which it owes; there is no time limit, as a slot
        that may still be written to can't be anyone else's. `writer` names whose puts `abandon`
        ends. Blocks of a chain should come in its order. A block that is known counts as used.
        """
        raise NotImplementedError

    def end_put(self, key: BlockKey, good: bool, now: Seconds) -> bool:
        """The slot holds the block, or (not `good`) anything: then it is free again.

        Whether the block is visible from now on: not if it was cleared meanwhile. `BugError` if
        nobody writes it.
        """
        raise NotImplementedError

    def present(self, keys: Sequence[BlockKey]) -> int:
        """How many of the keys, from the first on, are visible. Changes nothing: a probe is no use."""
        raise NotImplementedError

    def read(
        self, keys: Sequence[BlockKey], lease: LeaseId, now: Seconds, *, holder: str = ""
    ) -> tuple[Slot, ...]:
        """The slots of the longest visible prefix of the keys: they stay for `lease_ttl_s`.

        Counts as a use. Nothing visible, or too many leases: no slots, and no lease. `holder` names
        whose leases `abandon` ends. `BugError` if the lease's id is in use.
        """
        raise NotImplementedError

    def hold(self, keys: Sequence[BlockKey], lease: LeaseId, *, holder: str) -> tuple[Slot, ...]:
        """As `read`, for the store's own work (writing to disk, verifying): no use, no time limit."""
        raise NotImplementedError

    def release(self, lease: LeaseId, now: Seconds) -> bool:
        """The reader is done; whether the lease still lived. Unknown ids are fine."""
        raise NotImplementedError

    def expire(self, now: Seconds) -> int:
        """End the leases whose time has run out; returns how many."""
        raise NotImplementedError

    def next_deadline(self) -> Seconds | None:
        """When the next lease runs out; None: none does."""
        raise NotImplementedError

    def abandon(self, name: str, now: Seconds) -> int:
        """A writer or holder of this name is gone: its puts fail, its leases end; returns how many.

        Only once nothing is copied to its slots any more.
        """
        raise NotImplementedError

    def pin(self, keys: Sequence[BlockKey], now: Seconds) -> int:
        """Keep the longest visible prefix of the keys until `unpin`; returns its length.

        A mark, not a count: twice is once. At most half of the slots are pinned; beyond that the
        prefix is cut.
        """
        raise NotImplementedError

    def unpin(self, keys: Sequence[BlockKey]) -> int:
        """Take the marks off all of the keys that have one; returns how many had."""
        raise NotImplementedError

    def clear(
        self, tenant: bytes | None = None, keys: Sequence[BlockKey] | None = None
    ) -> int:
        """Forget these blocks: those of the tenant (None: of all), among the keys (None: all).

        Pinned ones too: a pin is against eviction. They are out of sight when this returns; slots
        that are read or written are free when that is over. Returns how many blocks it were.
        """
        raise NotImplementedError

    def drop(self, key: BlockKey) -> bool:
        """Forget one block (it was found wrong, or moved), as `clear`; whether it was here."""
        raise NotImplementedError

    def __contains__(self, key: BlockKey) -> bool:
        """Whether the block is visible."""
        raise NotImplementedError

    def keys(self) -> tuple[BlockKey, ...]:
        """All visible blocks, in no particular order."""
        raise NotImplementedError

    @property
    def free_slots(self) -> int:
        """Slots without a block."""
        raise NotImplementedError

    def stats(self, slot_bytes: int) -> TierStats:
        """Counts of the tier, slots being of this size."""
        raise NotImplementedError

    def tenants(self) -> tuple[TenantUse, ...]:
        """Counts of each tenant that has slots, by name."""
        raise NotImplementedError
