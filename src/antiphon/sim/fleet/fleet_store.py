"""One KV store in virtual time: the live tiers' decisions, without bytes.

    put ──► HostTier.begin_put ─ link ─ end_put ──► host tier ──► SlowerTier: to the SSD
    locate ──► host tier, under a lease ◄── begin_put ─ read ─ end_put ◄── BringUp: from the SSD

A block's key stands for its content (I12), so that nothing is copied: what is modelled is where
each block lies, and until when. Times are of the world's clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from antiphon.core.store_pool import PooledHostTier
from antiphon.core.tiers import (
    BringUp,
    Declined,
    Load,
    SlowerTier,
    Turn,
    policy_named,
    tiers_to_write,
)
from antiphon.perf import LinkTime
from antiphon.types import (
    BlockKey,
    KvChange,
    LeaseId,
    PutBlock,
    Seconds,
    StoreConfig,
    Tier,
    TierStats,
)

from ..virtual_loop import VirtualLoop

STAYS_S: Seconds = 0.1
"""So long a block that came from a peer stays at least: it would be the first to go again."""
_OWN = "the store"
"""Who holds what is written to the SSD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize:
    """Blocks that memory and SSD have room for, bytes of one, and how fast the SSD is."""

    host_blocks: int
    ssd_blocks: int
    block_bytes: int
    ssd: LinkTime


@dataclass(frozen=True, slots=True)
class Found:
    """The first `blocks` of those that were looked for stay until `lease` is released, or runs out;
    0: there is no lease. `life` of the store: what is found is lost with it."""

    lease: LeaseId
    blocks: int
    life: int


@dataclass(slots=True, eq=False)
class _Look:
    """Somebody looks for these, and some are on the SSD."""

    keys: Sequence[BlockKey]
    tenant: bytes
    holder: str
    deadline: Seconds
    then: Callable[[Found], None]
    way: BringUp
    leases: list[LeaseId] = field(default_factory=list)


class Beyond(Protocol):
    """The other stores of a pool, as one of them needs them."""

    def first_to_go(self, idle: Callable[[BlockKey], bool], now: Seconds) -> BlockKey | None:
        """See `core.store_pool.Replicas`."""
        ...

    def has(self, key: BlockKey) -> bool:
        """Whether the block can probably be had there."""
        ...

    def held(self) -> Iterator[BlockKey]:
        """All blocks that are there, as far as was heard."""
        ...

    def is_home(self, key: BlockKey) -> bool:
        """Whether the block lives here while it is cold."""
        ...

    def used(self, keys: tuple[BlockKey, ...]) -> None:
        """A worker of this store reads these."""
        ...

    def was_put(self, key: BlockKey) -> None:
        """A worker of this store has put it."""
        ...

    def bring(self, key: BlockKey, then: Callable[[bool], None]) -> Seconds | None:
        """Copy the block here; when that will be over. None: nobody has it."""
        ...


class FleetStore:
    """`listeners` hear of each block that comes in sight on a tier, or goes; `on_lost` are called
    after all was lost. `beyond`: other stores that it is in a pool with. Mutable."""

    def __init__(
        self,
        size: StoreSize,
        config: StoreConfig,
        loop: VirtualLoop,
        beyond: Beyond | None = None,
    ) -> None:
        self.size = size
        self.lives = 1
        self.listeners: list[Callable[[KvChange], None]] = []
        self.on_lost: list[Callable[[], None]] = []
        self._loop = loop
        self._beyond = beyond
        self._host = PooledHostTier(
            first_to_go=beyond.first_to_go if beyond is not None else _no_copies,
            slots=size.host_blocks,
            policy=policy_named(config.policy, spread=beyond is not None),
            lease_ttl_s=config.lease_ttl_s,
            tenant_share=config.tenant_share,
            listen=self._changed,
        )
        self._ssd: SlowerTier | None = None
        if size.ssd_blocks:
            self._ssd = SlowerTier(Tier.DISK, listen=self._changed, most_blocks=size.ssd_blocks)
        self._loading: dict[BlockKey, Seconds] = {}
        """What is on its way here, and when that is over."""
        self._read_free_at: Seconds = 0.0
        self._writing = False
        self._full = 0
        self._leases = 0

    def __len__(self) -> int:
        """Places of blocks: one that is in memory and on the SSD counts twice."""
        return self._host.visible_blocks + (0 if self._ssd is None else len(self._ssd.keys))

    def held(self) -> Iterator[tuple[BlockKey, Tier]]:
        """All that can be had, at this moment."""
        yield from ((key, Tier.HOST) for key in self._host.keys if key in self._host)
        if self._ssd is not None:
            yield from ((key, Tier.DISK) for key in self._ssd.keys)
        if self._beyond is not None:
            yield from ((key, Tier.PEER) for key in self._beyond.held())

    def stats(self) -> TierStats:
        """Counts of its memory."""
        return self._host.stats(self.size.block_bytes)

    def tell(self, change: KvChange) -> None:
        """Peers have a block from now on, or have it no more: listeners hear it."""
        self._changed(change)

    def _changed(self, change: KvChange) -> None:
        for listen in self.listeners:
            listen(change)

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────

    def lose_all(self) -> None:
        """Nobody can have any block any more, nor what is being copied. Mutates."""
        self.lives += 1
        self._host.clear()
        if self._ssd is not None:
            self._ssd.prune(self._host)
            self._ssd.gone(list(self._ssd.keys))
        for lost in self.on_lost:
            lost()

    def fill(self) -> None:
        """Nothing more can be written to the SSD, until each `fill` has had its `make_room`."""
        self._full += 1

    def make_room(self) -> None:
        """End one `fill`."""
        self._full -= 1
        self._write()

    # ── puts ─────────────────────────────────────────────────────────────────────────────────

    def begin_put(self, block: PutBlock, tenant: bytes, writer: str) -> bool:
        """Whether there is room for it, and it is worth it: then the caller owes `end_put`."""
        orphan = block.parent is not None and self._where(block.parent) is None
        slot = self._host.begin_put(
            block.key, block.parent, tenant, self._loop.now, writer=writer, needs_parent=orphan
        )
        return not isinstance(slot, Declined)

    def end_put(self, key: BlockKey, good: bool) -> None:
        """It is here, or (not `good`) came to nothing."""
        visible = self._host.end_put(key, good, self._loop.now)
        if visible:
            self._arrived(key, Tier.DEVICE)

    def take_in(self, key: BlockKey, source: "FleetStore") -> None:
        """This store is home to a block that `source` has: copy it, if there is room."""
        parent = source.parent_of(key)
        if key not in self._host and key not in self._loading and key in source._host:
            self._host.expect(key, source._host.position_of(key))
            self._begin_load(Load(key, parent, Tier.PEER), source.tenant_of(key))

    def parent_of(self, key: BlockKey) -> BlockKey | None:
        """Of a block that is in memory."""
        return self._host.parent_of(key)

    def tenant_of(self, key: BlockKey) -> bytes:
        """Likewise."""
        return self._host.tenant_of(key)

    def lend(self, key: BlockKey, lease: LeaseId, holder: str) -> bool:
        """Whether the block is in memory: it stays under this lease."""
        return bool(self._host.lend([key], lease, self._loop.now, holder=holder))

    def _arrived(self, key: BlockKey, came_from: Tier) -> None:
        """It is in memory from now on."""
        beyond = self._beyond
        at_home = beyond is None or beyond.is_home(key)
        to_ssd = self._ssd is not None and tiers_to_write(came_from, (Tier.DISK,), at_home=at_home)
        if to_ssd and self._ssd is not None and self._ssd.offer(key):
            self._write()
        if came_from is Tier.DEVICE and beyond is not None:
            beyond.was_put(key)

    def doubt(self, key: BlockKey) -> None:
        """What computed it has failed: nobody shall find it. Mutates."""
        self._host.clear(keys=(key,))
        if self._ssd is not None:
            self._ssd.prune(self._host)
            self._ssd.gone((key,))

    def left(self, name: str) -> None:
        """A writer and holder of this name is gone: its puts fail, its leases end."""
        self._host.abandon(name, self._loop.now)

    # ── to the SSD ───────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        """What waits, a few blocks at a time."""
        if self._ssd is None or self._writing or self._full:
            return
        held = self._ssd.take(self._hold)
        if not held:
            return
        self._writing = True
        took_s = self.size.ssd.seconds(len(held) * self.size.block_bytes)
        life = self.lives
        self._loop.call_at(self._loop.now + took_s, lambda: self._wrote(held, life))

    def _hold(self, key: BlockKey) -> tuple[BlockKey, LeaseId] | None:
        lease = self._new_lease()
        return (key, lease) if self._host.hold((key,), lease, holder=_OWN) else None

    def _wrote(self, held: Sequence[tuple[BlockKey, LeaseId]], life: int) -> None:
        assert self._ssd is not None
        self._ssd.wrote()
        for key, lease in held:
            in_sight = key in self._host
            self._host.release(lease, self._loop.now)
            if in_sight and life == self.lives:
                self._ssd.found(key)
        self._writing = False
        self._write()

    # ── reads ────────────────────────────────────────────────────────────────────────────────

    def locate(
        self,
        keys: Sequence[BlockKey],
        tenant: bytes,
        *,
        holder: str,
        wait_s: Seconds,
        then: Callable[[Found], None],
    ) -> None:
        """Tell `then` of the longest prefix of the keys that is in memory, once what is on the SSD
        was brought up, as far as that takes no longer than `wait_s`."""
        now = self._loop.now
        found = self._read(keys, holder)
        if found.blocks == len(keys) or (self._ssd is None and self._beyond is None):
            then(found)
            return
        after = keys[found.blocks - 1] if found.blocks else None
        look = _Look(keys, tenant, holder, now + wait_s, then, BringUp(keys[found.blocks :], after))
        look.leases.append(found.lease)
        self._go_on(look)

    def release(self, lease: LeaseId) -> bool:
        """The reader is done; whether the blocks stayed until now."""
        return self._host.release(lease, self._loop.now)

    def present(self, keys: Sequence[BlockKey]) -> int:
        """How many of the keys, from the first on, are in memory. Does not mutate."""
        return self._host.present(keys)

    def _read(self, keys: Sequence[BlockKey], holder: str) -> Found:
        lease = self._new_lease()
        slots = self._host.read(keys, lease, self._loop.now, holder=holder)
        if self._beyond is not None:
            self._beyond.used(tuple(keys[: len(slots)]))
        return Found(lease, len(slots), self.lives)

    def _new_lease(self) -> LeaseId:
        self._leases += 1
        return LeaseId(f"l{self._leases}")

    def _where(self, key: BlockKey) -> Tier | None:
        if key in self._host:
            return Tier.HOST
        if self._ssd is not None and key in self._ssd:
            return Tier.DISK
        return Tier.PEER if self._beyond is not None and self._beyond.has(key) else None

    # ── from the SSD, and from peers ─────────────────────────────────────────────────────────

    def _go_on(self, look: _Look) -> None:
        """The next few blocks; at the end, or when it is time, what there is."""
        now = self._loop.now
        turn = None
        if now < look.deadline:
            turn = look.way.next_turn(self._where, self._loading)
        if turn is None:
            self._end(look)
            return
        for load in turn.begin:
            if not self._begin_load(load, look.tenant):
                break
        ends = [self._loading[key] for key in turn.missing if key in self._loading]
        at = max(now, min(max(ends, default=now), look.deadline))
        self._loop.call_at(at, lambda: self._turned(look, turn))

    def _turned(self, look: _Look, turn: Turn) -> None:
        part = self._read(turn.keys, look.holder)
        look.leases.append(part.lease)
        look.way.held(part.blocks)
        self._go_on(look)

    def _end(self, look: _Look) -> None:
        """Looked for anew: the leases so far may have ended while something was waited for."""
        found = self._read(look.keys, look.holder)
        for lease in look.leases:
            self.release(lease)
        look.then(found)

    def _begin_load(self, load: Load, tenant: bytes) -> bool:
        """Whether it is on its way."""
        now, life = self._loop.now, self.lives
        if isinstance(self._host.begin_put(load.key, load.parent, tenant, now), Declined):
            return False
        if load.tier is Tier.PEER:
            return self._begin_bring(load.key)
        took_s = self.size.ssd.seconds(self.size.block_bytes)
        ends_at = self._read_free_at = max(now, self._read_free_at) + took_s
        self._loading[load.key] = ends_at
        self._loop.call_at(ends_at, lambda: self._loaded(load.key, life))
        return True

    def _loaded(self, key: BlockKey, life: int) -> None:
        del self._loading[key]
        good = life == self.lives and self._ssd is not None and key in self._ssd
        self._host.end_put(key, good, self._loop.now)

    def _begin_bring(self, key: BlockKey) -> bool:
        assert self._beyond is not None
        life = self.lives

        def came(good: bool) -> None:
            del self._loading[key]
            if self._host.end_put(key, good and life == self.lives, self._loop.now):
                self._arrived(key, Tier.PEER)
                lease = self._new_lease()
                self._host.hold((key,), lease, holder=_OWN)
                self._loop.call_at(self._loop.now + STAYS_S, lambda: self.release(lease))

        ends_at = self._beyond.bring(key, came)
        if ends_at is None:
            self._host.end_put(key, False, self._loop.now)
            return False
        self._loading[key] = ends_at
        return True


def _no_copies(_idle: Callable[[BlockKey], bool], _now: Seconds) -> BlockKey | None:
    """A store that is in no pool has none."""
    return None
