"""Which block lies in which slot of the store's shared memory, who reads it, and what goes next.

    free ──begin_put──▶ writing ──end_put(good)──▶ visible ──evict──▶ free
                           │                          under a lease or a pin: never evicted
                           └──end_put(not good)──▶ free

What is cleared is out of sight at once, but its slot stays until nobody writes or reads it:

    writing ──clear──▶ cancelled ──end_put──▶ free
    visible ──clear──▶ leaving ──last lease──▶ free

`free + writing + visible + leaving == total`, always (what is cancelled counts as being written).

**What goes.** Only ends of chains: a block is never evicted before those that continue it, since a
prefix search finds nothing behind a gap. Among the ends, the tenant's policy decides. A victim
costs O(log n), so it is chosen when its slot is needed: there is no watermark.

**Whose.** A tenant at its quota gives up its own. Else a hand goes round the slots (as in CLOCK),
and the tenant whose block lies under it gives up what its own policy says: all lose in proportion
to what they have, so that in the long run they have what they put. Half of the memory, divided by
the tenants, is guaranteed: nobody who was there in the last ten minutes is brought below that by
another's puts.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from antiphon.errors import BugError
from antiphon.types import BlockKey, KvChange, LeaseId, Seconds, Tier, TierStats

from .block_chains import BlockChains
from .block_leases import BlockLeases
from .declined import Declined, DeclineReason
from .eviction import PolicyFactory
from .held_block import BlockState, HeldBlock, Slot
from .slot_table import SlotTable
from .tenant_account import TenantAccount, TenantUse

_PINNED_SHARE = 0.5
"""Of all slots: what pins may take out of eviction's reach."""


@dataclass(slots=True, eq=False)
class _Totals:
    puts: int = 0
    hits: int = 0
    misses: int = 0
    evicted: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str) -> None:
        self.dropped[str(reason)] = self.dropped.get(str(reason), 0) + 1


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
        self._slots = SlotTable(slots, tenant_share=tenant_share, policy=policy)
        self._leases = BlockLeases(ttl_s=lease_ttl_s)
        self._max_leases = max_leases
        self._max_pinned = int(slots * _PINNED_SHARE)
        self._listen = listen
        self._blocks = BlockChains()
        self._puts: dict[str, dict[BlockKey, None]] = {}
        """What each writer has begun and not ended."""
        self._writing = 0
        self._leaving = 0
        self._pinned = 0
        self._totals = _Totals()

    def begin_put(
        self,
        key: BlockKey,
        parent: BlockKey | None,
        tenant: bytes,
        now: Seconds,
        *,
        writer: str = "",
        needs_parent: bool = False,
        position: int = 0,
    ) -> Slot | Declined:
        """A slot to write the block to, evicting another block if need be.

        The slot is the caller's until `end_put`, which it owes; there is no time limit, as a slot
        that may still be written to can't be anyone else's. `writer` names whose puts `abandon`
        ends. A block that is known counts as used, unless it was just read: its reader has it now.

        Blocks of a chain should come in its order. `needs_parent`: no other tier has the parent; if
        it is not here either, the block gets a free slot or none. `position`: how many blocks are
        before it in its chain, if the parent is not here.
        """
        self.expire(now)
        known = self._blocks.get(key)
        if known is not None:
            read_lately = now - known.read_at < self._leases.ttl_s
            if known.state is BlockState.VISIBLE and not read_lately:
                known.account.policy.use(key)
            return self._decline(DeclineReason.KNOWN)
        if self._blocks.would_loop(key, parent):
            return self._decline(DeclineReason.LOOP)
        account = self._slots.account(tenant, now)
        orphan = needs_parent and parent is not None and self._blocks.get(parent) is None
        self._blocks.link(parent)
        reason = self._make_room(account, now, evict=not orphan)
        if reason is not None:
            self._blocks.unlink(parent)
            return self._decline(reason)
        before = self._blocks.get(parent)
        block = HeldBlock(
            key=key,
            parent=parent,
            account=account,
            slot=self._slots.take(account),
            position=before.position + 1 if before is not None else position,
            writer=writer,
        )
        self._slots.fill(block)
        self._blocks.add(block)
        self._puts.setdefault(writer, {})[key] = None
        self._writing += 1
        return block.slot

    def end_put(self, key: BlockKey, good: bool, now: Seconds) -> bool:
        """The slot holds the block, or (not `good`) anything: then it is free again.

        Whether the block is visible from now on: not if it was cleared meanwhile. `BugError` if
        nobody writes it.
        """
        block = self._blocks.get(key)
        if block is None or block.state is BlockState.VISIBLE:
            raise BugError(f"block {key.hex()[:16]} is not being written")
        self._writing -= 1
        puts = self._puts[block.writer]
        del puts[key]
        if not puts:
            del self._puts[block.writer]
        if not good or block.state is BlockState.CANCELLED:
            self._totals.drop("cleared" if good else "failed")
            self._take_out(block)
            self._slots.give_back(block)
            return False
        block.state = BlockState.VISIBLE
        self._totals.puts += 1
        block.account.policy.add(key, block.position)
        self._blocks.weigh(block)
        self._listen(KvChange(key, Tier.HOST, True))
        return True

    def present(self, keys: Sequence[BlockKey]) -> int:
        """How many of the keys, from the first on, are visible. A probe: changes nothing."""
        return len(self._blocks.prefix(keys))

    def visible(self, keys: Sequence[BlockKey]) -> list[bool]:
        """Of each key whether it is in `self`. A probe: changes nothing."""
        blocks = map(self._blocks.get, keys)
        return [block is not None and block.state is BlockState.VISIBLE for block in blocks]

    def read(
        self, keys: Sequence[BlockKey], lease: LeaseId, now: Seconds, *, holder: str = ""
    ) -> tuple[Slot, ...]:
        """The slots of the longest visible prefix of the keys: they stay for `lease_ttl_s`.

        Counts as a use. Nothing visible, or too many leases: no slots, and no lease. `holder` names
        whose leases `abandon` ends. `BugError` if the lease's id is in use.
        """
        self.expire(now)
        found = self._blocks.prefix(keys)
        if found and len(self._leases) >= self._max_leases:
            self._totals.drop("leases")
            found = []
        self._totals.hits += len(found)
        self._totals.misses += len(keys) - len(found)
        if not found:
            return ()
        found[0].account.active_at = now
        for block in reversed(found):
            block.read_at = now
            block.account.policy.use(block.key)
        return self._lease(found, lease, holder, now)

    def hold(self, keys: Sequence[BlockKey], lease: LeaseId, *, holder: str) -> tuple[Slot, ...]:
        """As `read`, for the store's own work (to disk, to verify): no use, and no time limit."""
        found = self._blocks.prefix(keys)
        return self._lease(found, lease, holder, None) if found else ()

    def release(self, lease: LeaseId, now: Seconds) -> bool:
        """The reader is done; whether the lease still lived. Unknown ids are fine."""
        self.expire(now)
        return self._end_lease(lease)

    def expire(self, now: Seconds) -> int:
        """End the leases whose time has run out; returns how many."""
        due = self._leases.due(now)
        for lease in due:
            self._end_lease(lease)
        return len(due)

    def next_deadline(self) -> Seconds | None:
        """When the next lease runs out; None: none does."""
        return self._leases.next_deadline()

    def abandon(self, name: str, now: Seconds) -> int:
        """A writer or holder of this name is gone: its puts fail, its leases end; returns how many.

        Only once nothing is copied to its slots any more.
        """
        puts = list(self._puts.get(name, ()))
        for key in puts:
            self.end_put(key, False, now)
        leases = self._leases.of(name)
        for lease in leases:
            self._end_lease(lease)
        return len(puts) + len(leases)

    def pin(self, keys: Sequence[BlockKey], now: Seconds) -> int:
        """Keep the longest visible prefix of the keys until `unpin`; returns its length.

        A mark, not a count: twice is once. At most half of the slots are pinned; beyond that the
        prefix is cut.
        """
        pinned = 0
        for block in self._blocks.prefix(keys):
            if not block.pinned and self._pinned >= self._max_pinned:
                break
            self._mark(block, True)
            pinned += 1
        return pinned

    def unpin(self, keys: Sequence[BlockKey]) -> int:
        """Take the marks off all of the keys that have one; returns how many had."""
        pinned = [block for key in keys if (block := self._blocks.get(key)) and block.pinned]
        for block in pinned:
            self._mark(block, False)
        return len(pinned)

    def is_pinned(self, key: BlockKey) -> bool:
        """Whether the block is here under a pin."""
        block = self._blocks.get(key)
        return block is not None and block.pinned

    def clear(self, tenant: bytes | None = None, keys: Sequence[BlockKey] | None = None) -> int:
        """Forget these blocks: those of the tenant (None: of all), among the keys (None: all).

        Pinned ones too: a pin is against eviction. They are out of sight when this returns; slots
        that are read or written are free when that is over. Returns how many blocks it were.
        """
        count = 0
        for key in list(self._blocks.keys()) if keys is None else keys:
            block = self._blocks.get(key)
            if block is not None and tenant in (None, block.account.tenant):
                count += self._forget(block)
        return count

    def drop(self, key: BlockKey) -> bool:
        """Forget one block (it was found wrong, or moved), as `clear`; whether it was here."""
        return self.clear(keys=(key,)) == 1

    def __contains__(self, key: BlockKey) -> bool:
        """Whether the block is visible."""
        block = self._blocks.get(key)
        return block is not None and block.state is BlockState.VISIBLE

    @property
    def keys(self) -> Collection[BlockKey]:
        """All blocks, those that are being written too, oldest first. Valid until the next call of
        anything."""
        return self._blocks.keys()

    @property
    def free_slots(self) -> int:
        """Slots without a block."""
        return self._slots.free

    def stats(self, slot_bytes: int) -> TierStats:
        """Counts of the tier, slots being of this size."""
        blocks = self._slots.total - self._slots.free
        totals = self._totals
        return TierStats(
            tier=Tier.HOST,
            blocks=self.visible_blocks,
            used_bytes=blocks * slot_bytes,
            limit_bytes=self._slots.total * slot_bytes,
            pinned_blocks=self._pinned,
            leases=len(self._leases),
            put_blocks_total=totals.puts,
            hit_blocks_total=totals.hits,
            missed_blocks_total=totals.misses,
            evicted_blocks_total=totals.evicted,
            dropped=tuple(sorted(totals.dropped.items())),
        )

    def tenants(self) -> tuple[TenantUse, ...]:
        """Counts of each tenant that has slots, by name."""
        return self._slots.uses()

    @property
    def writing_slots(self) -> int:
        """Slots that somebody writes to, or is about to."""
        return self._writing

    @property
    def visible_blocks(self) -> int:
        """Blocks that are found."""
        return len(self._blocks) - self._writing

    @property
    def leaving_slots(self) -> int:
        """Slots of blocks that were cleared while they were read, and are."""
        return self._leaving

    def _make_room(
        self, account: TenantAccount, now: Seconds, *, evict: bool
    ) -> DeclineReason | None:
        """See that there is a slot for the tenant: evicts at most one block."""
        at_quota = self._slots.is_at_quota(account)
        if self._slots.free and not at_quota:
            return None
        if not evict:
            return DeclineReason.ORPHAN
        block = self._blocks.get(self._slots.victim(account, now))
        if block is None:
            return DeclineReason.QUOTA if at_quota else DeclineReason.FULL
        self._take_out(block, evicted=True)
        self._slots.give_back(block)
        self._totals.evicted += 1
        return None

    def _forget(self, block: HeldBlock) -> bool:
        """Out of sight now, out of its slot as soon as nobody uses that; False: it was already."""
        match block.state:
            case BlockState.WRITING:
                block.state = BlockState.CANCELLED
            case BlockState.VISIBLE:
                self._take_out(block)
                if block.leases:
                    block.state = BlockState.LEAVING
                    self._leaving += 1
                else:
                    self._slots.give_back(block)
            case _:
                return False
        return True

    def _take_out(self, block: HeldBlock, *, evicted: bool = False) -> None:
        """Nobody finds the block from now on; its slot is not touched."""
        self._blocks.remove(block)
        if block.state is BlockState.VISIBLE:
            if block.pinned:
                self._pinned -= 1
            block.account.policy.remove(block.key, evicted=evicted)
            self._listen(KvChange(block.key, Tier.HOST, False))

    def _lease(
        self, blocks: Sequence[HeldBlock], lease: LeaseId, holder: str, now: Seconds | None
    ) -> tuple[Slot, ...]:
        self._leases.open(lease, holder, tuple(blocks), now)
        for block in blocks:
            block.leases += 1
            self._blocks.weigh(block)
        return tuple(block.slot for block in blocks)

    def _end_lease(self, lease: LeaseId) -> bool:
        blocks = self._leases.close(lease)
        for block in blocks or ():
            block.leases -= 1
            if block.state is BlockState.VISIBLE:
                self._blocks.weigh(block)
            elif not block.leases:
                self._leaving -= 1
                self._slots.give_back(block)
        return blocks is not None

    def _mark(self, block: HeldBlock, pinned: bool) -> None:
        self._pinned += pinned - block.pinned
        block.pinned = pinned
        self._blocks.weigh(block)

    def _decline(self, reason: DeclineReason) -> Declined:
        self._totals.drop(reason)
        return Declined(reason)
