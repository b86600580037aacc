"""All blocks of one tenancy: which are in shared memory, which on disk, and how they move between.

Put ──► put_queue ──► begin_put ─ copy ─ end_put ──► host tier ──► write behind ──► disk, remote
Locate ──► host tier under a lease ◄── begin_put ─ read ─ end_put ◄── disk, peers, remote
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from antiphon.core.store_joining import Tenancy
from antiphon.core.store_pool import EXACT, FetchTerms, PooledHostTier
from antiphon.core.tiers import Declined, PutQueue, Slot, Waiting, policy_named, tiers_to_write
from antiphon.live.slices import slices
from antiphon.live.started_threads import ended_unless, started_threads
from antiphon.store.record import RecordedBlock
from antiphon.store.transfer import MappedRegion
from antiphon.types import (
    BlockKey,
    KvChange,
    LeaseId,
    OfferedPage,
    PutBlock,
    Seconds,
    StoreConfig,
    Tier,
)

from .bringing_up import BringingUp
from .disk_blocks import DiskBlocks
from .host_memory import HostBlocks, HostMemory
from .peers import Alone, Peers
from .remote_blocks import RemoteBlocks

_COPIES_AT_ONCE = 16
"""Blocks that go to the copy thread in one piece: a turn costs as much as a small block."""
MOST_FETCHES = 32
"""Locates that may wait for slower tiers at once; others get what is in memory."""

T = TypeVar("T")
_PLACES = (Tier.HOST, Tier.PEER, Tier.DISK, Tier.REMOTE)
_TIERS = [
    tuple(tier for bit, tier in enumerate(_PLACES) if which >> bit & 1)
    for which in range(1 << len(_PLACES))
]
"""Sets of tiers, by a bit for each."""


@dataclass(frozen=True, eq=False)
class Source:
    """A worker whose blocks are copied in. `name` is of this stream alone."""

    name: str
    numerics: str
    memory: MappedRegion


class TieredBlocks:
    """The tiers of one tenancy. `note` hears of each change of what they hold, in order.

    Lives from `start` to `close`. `spawn` runs its tasks, and hears if one breaks a law.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        config: StoreConfig,
        *,
        note: Callable[[KvChange], None],
        open_slower: Callable[[HostBlocks], tuple[DiskBlocks | None, RemoteBlocks | None]],
        peers: Peers | None = None,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        clock: Callable[[], Seconds],
    ) -> None:
        """Raises `UsageError`: a shape that no memory can be made for, or no threads are left."""
        self.tenancy = tenancy
        self.peers: Peers = peers or Alone()
        self.memory = HostMemory(tenancy, config.memory_bytes)
        self.copying = started_threads(1, "kv-copy")
        self.host = PooledHostTier(
            first_to_go=self.peers.first_to_go,
            slots=self.memory.slots,
            policy=policy_named(config.policy, spread=self.peers.possible),
            lease_ttl_s=config.lease_ttl_s,
            tenant_share=config.tenant_share,
            listen=note,
        )
        self.own_work = HostBlocks(self.host, self.memory, clock)
        with ended_unless(self.copying):
            self.disk, self.remote = open_slower(self.own_work)
        slower = {Tier.DISK: self.disk, Tier.REMOTE: self.remote}
        self._slower = {name: tier for name, tier in slower.items() if tier is not None}
        self.dropped: dict[str, int] = {}
        """Puts that were not kept, and reads that were not given, but for the host tier's own."""
        self._clock = clock
        self._spawn = spawn
        self._note = note
        self._queue: PutQueue[Source] = PutQueue()
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._fetches = 0
        self._users: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.bringing_up = BringingUp(
            self.own_work, self.disk, self.peers, self.remote, arrived=self._arrived, spawn=spawn
        )
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Once, before all else. Raises `UsageError`: peers can't be served; `close` is owed."""
        self.peers.attach(self)
        work = [self._carry_out_puts(), *(tier.run() for tier in self._slower.values())]
        self._running = [self._spawn(one) for one in work]

    def now(self) -> Seconds:
        """The clock of leases."""
        return self._clock()

    def held(self) -> Iterator[tuple[BlockKey, Tier]]:
        """All that can be had, at this moment. May be read while it changes: what comes meanwhile
        is left out, and what goes is from then on."""
        places = [(Tier.HOST, self.host), (Tier.PEER, self.peers), *self._slower.items()]
        now = [(name, tier, list(tier.keys)) for name, tier in places]
        return ((key, name) for name, tier, keys in now for key in keys if key in tier)

    def tiers_of(self, keys: Sequence[BlockKey]) -> tuple[tuple[Tier, ...], ...]:
        """Where each lies now, fastest first."""
        here = self.host.visible(keys)
        if not (self._slower or self.peers.possible):
            return tuple([_TIERS[one] for one in here])
        peers, disk, remote = self.peers, self.disk or (), self.remote or ()
        return tuple(
            [
                _TIERS[one + 2 * (key in peers) + 4 * (key in disk) + 8 * (key in remote)]
                for key, one in zip(keys, here, strict=True)
            ]
        )

    async def using(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of `work`, which uses these blocks; None: they were closed before its end."""
        if self._closed:
            work.close()
            return None
        task = asyncio.create_task(work)
        self._users.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not self._closed or (caller is not None and caller.cancelling()):
                raise
            return None
        finally:
            self._users.discard(task)

    async def close(self) -> None:
        """What is under way ends, and who uses them is told; what is on disk stays there."""
        self._closed = True
        await self.peers.close()
        ending = [*self._users, *self._running]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self.bringing_up.close()
        if self._timer is not None:
            self._timer.cancel()
        for tier in self._slower.values():
            await tier.close()
        self.copying.shutdown(wait=False)
        for key, tier in list(self.held()):
            self._note(KvChange(key, tier, stored=False))

    # ── puts ─────────────────────────────────────────────────────────────────────────────────

    def put(self, source: Source, tenant: bytes, blocks: Sequence[PutBlock]) -> None:
        """Keep these if it is worth it, and they are still there at their turn."""
        taken = self._queue.add(source, [Waiting(tenant, block) for block in blocks])
        self._drop("queue_full", len(blocks) - taken)
        self._news.set()

    def forget(self, source: Source) -> None:
        """A worker is gone: what it wanted to put, and its leases."""
        self._drop("worker_gone", self._queue.forget(source))
        self.abandon(source.name)

    def doubt(self, keys: Sequence[BlockKey]) -> None:
        """Nobody finds these from now on: not in memory, and on slower tiers, and at peers, once
        each has come to it. A copy that is under way comes to nothing."""
        self.peers.doubt(keys)
        self.doubt_here(keys)

    def doubt_here(self, keys: Sequence[BlockKey]) -> None:
        """`doubt`, without the peers."""
        self._drop("doubtful", self._queue.drop(frozenset(keys)))
        self.host.clear(keys=keys)
        for tier in self._slower.values():
            self._spawn(tier.remove(keys))

    async def clear(
        self, tenant: bytes | None, keys: Sequence[BlockKey] | None
    ) -> tuple[int, bool]:
        """Forget the tenant's (None: anybody's) among the keys (None: all), on all tiers: whatever
        came before this is found nowhere after it. How many places of blocks were cleared, or, if
        more, blocks of one tier; False: the remote tier could not be asked about all.

        Slowest first: what readers bring up meanwhile goes with the next tier.
        """
        self._drop("cleared", self._queue.drop(None if keys is None else frozenset(keys), tenant))
        in_memory, on_disk, on_remote = await self._clear_memory(tenant, keys), 0, 0
        all_asked = True
        if self.remote is not None:
            on_remote, all_asked = await self.remote.clear(tenant, keys)
            in_memory += await self._clear_memory(tenant, keys)
        if self.disk is not None:
            on_disk = await self.disk.clear(tenant, keys)
            await self._clear_memory(tenant, keys)
        return max(in_memory, on_disk, on_remote), all_asked

    async def _clear_memory(self, tenant: bytes | None, keys: Sequence[BlockKey] | None) -> int:
        """With what waits to be written from there. All that is there when this is called is gone
        when it returns; what comes meanwhile need not be."""
        count = 0
        async for part in slices(list(self.host.keys) if keys is None else keys):
            count += self.host.clear(tenant, part)
        for tier in self._slower.values():
            tier.prune()
        return count

    def _drop(self, why: str, count: int) -> None:
        if count:
            self.dropped[why] = self.dropped.get(why, 0) + count

    async def _carry_out_puts(self) -> None:
        while True:
            turn = self._queue.take(_COPIES_AT_ONCE)
            if turn is None:
                self._news.clear()
                await self._news.wait()
                continue
            source, waiting = turn
            admitted = [pair for one in waiting if (pair := self._admitted(source, one))]
            if admitted:
                await self._copy_in(source, admitted)

    def _admitted(self, source: Source, one: Waiting) -> tuple[Slot, Waiting] | None:
        block, now = one.block, self._clock()
        [where] = self.tiers_of([block.parent]) if block.parent is not None else [()]
        slot = self.host.begin_put(block.key, block.parent, one.tenant, now, needs_parent=not where)
        if isinstance(slot, Declined):
            return None
        return slot, one

    async def _copy_in(self, source: Source, admitted: Sequence[tuple[Slot, Waiting]]) -> None:
        """A thread copies them; each that has a slot gets the end of its put."""

        def copy() -> list[tuple[OfferedPage, ...] | None]:
            return [
                self.memory.copy_in(source.memory, slot, one.block.pages) for slot, one in admitted
            ]

        work = asyncio.get_running_loop().run_in_executor(self.copying, copy)
        try:
            sealed = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        for (slot, one), pages in zip(admitted, sealed, strict=True):
            record = RecordedBlock(
                key=one.block.key,
                parent=one.block.parent,
                tenant=one.tenant,
                numerics=source.numerics,
            )
            self._drop("overtaken", pages is None)
            self._arrived(slot, record, pages, Tier.DEVICE)

    def _arrived(
        self,
        slot: Slot,
        record: RecordedBlock,
        pages: tuple[OfferedPage, ...] | None,
        came_from: Tier,
    ) -> None:
        """A thread has done with a slot. What is there now goes to the tiers that lack it."""
        if pages is not None:
            self.memory.seal(slot, record, pages)
        lossy = pages is not None and bool(record.lineage)
        if lossy:
            self.peers.inexact(record.key, True)
        visible = self.host.end_put(record.key, pages is not None, self._clock())
        if lossy:
            if not visible:
                self.peers.inexact(record.key, False)
        elif visible:
            at_home = self.peers.is_home(record.key)
            for tier in tiers_to_write(came_from, self._slower, at_home=at_home):
                self._slower[tier].offer(record.key)
            if came_from is Tier.DEVICE:
                self.peers.was_put(record.key)

    # ── reads ────────────────────────────────────────────────────────────────────────────────

    def read(
        self, keys: Sequence[BlockKey], holder: str
    ) -> tuple[LeaseId | None, tuple[Slot, ...]]:
        """The slots of the longest prefix in shared memory, under a new lease."""
        lease = LeaseId(secrets.token_hex(16))
        slots = self.host.read(keys, lease, self._clock(), holder=holder)
        self.peers.used(keys[: len(slots)])
        self._wind_up()
        return (lease if slots else None), slots

    def lend(
        self, keys: Sequence[BlockKey], holder: str
    ) -> tuple[LeaseId | None, dict[BlockKey, Slot]]:
        """The slots of those of the keys that are in shared memory, under a new lease."""
        lease = LeaseId(secrets.token_hex(16))
        slots = self.host.lend(keys, lease, self._clock(), holder=holder)
        self._wind_up()
        return (lease if slots else None), slots

    def abandon(self, holder: str) -> None:
        """Who held leases under this name is gone."""
        self.host.abandon(holder, self._clock())
        self._wind_up()

    def release(self, lease: LeaseId) -> None:
        """The reader is done. A lease that is over, or never was, is fine."""
        self.host.release(lease, self._clock())
        self._wind_up()

    def is_all(self, keys: Sequence[BlockKey], slots: Sequence[Slot]) -> bool:
        """Whether what `read` found is as much as `bring_up` could make it."""
        return len(slots) == len(keys) or not self.bringing_up.possible

    async def locate(
        self, keys: Sequence[BlockKey], tenant: bytes | None, wait_s: Seconds, holder: str
    ) -> tuple[LeaseId | None, tuple[Slot, ...], int]:
        """`read`, and what `bring_up` makes of it."""
        lease, slots = self.read(keys, holder)
        if self.is_all(keys, slots):
            return lease, slots, 0
        return await self.bring_up(keys, lease, slots, tenant, wait_s, holder)

    async def bring_up(
        self,
        keys: Sequence[BlockKey],
        lease: LeaseId | None,
        slots: tuple[Slot, ...],
        tenant: bytes | None,
        wait_s: Seconds,
        holder: str,
        terms: FetchTerms = EXACT,
    ) -> tuple[LeaseId | None, tuple[Slot, ...], int]:
        """`read` anew, after blocks on slower tiers were brought up within `wait_s`; the last value
        says how many were. `tenant` None: whoever put them. `terms`: how, of the first key on.

        `lease` and `slots` are what `read` found. Callers take turns, a few blocks each, so that a
        short prefix does not wait for a long one. What was brought up stays under leases of
        `holder` until all is.
        """
        if self._fetches >= MOST_FETCHES:
            self._drop("too_many_fetches", 1)
            return lease, slots, 0
        leases = [lease]

        def keep(part: Sequence[BlockKey]) -> int:
            lease, slots = self.read(part, holder)
            leases.append(lease)
            return len(slots)

        rest, after = keys[len(slots) :], keys[len(slots) - 1] if slots else None
        self._fetches += 1
        try:
            mine = terms.after(len(slots))
            brought = await self.bringing_up.bring_up(rest, after, tenant, wait_s, keep, mine)
            # Looked for anew: the leases so far may have ended while something was waited for.
            return *self.read(keys, holder), brought
        finally:
            self._fetches -= 1
            for one in leases:
                if one is not None:
                    self.release(one)

    def _wind_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline := self.host.next_deadline()) is not None:
            delay_s = max(0.0, deadline - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self.host.expire(self._clock())
        self._wind_up()
