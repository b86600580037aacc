"""A virtual worker beside a store of its fleet: puts what its scheduler names, fetches what it asks
for, over a link that carries one thing after another.

    scheduler ── BlockStored ──► PutQueue ─ link, a few blocks at a time ──► FleetStore
    scheduler ── Fetch ──► FleetStore.locate ─ link ──► fetched: what came, the rest is computed

As live, a put has no lease: a block whose pages were used anew before they were copied is not kept.
One deadline stands over a fetch: what has not come by then is computed.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from antiphon.core.faults import STORE, Boundary
from antiphon.core.tiers import LOCATE_SHARE, PutQueue, Waiting
from antiphon.perf import LinkTime
from antiphon.types import (
    BlockKey,
    BlockRemoved,
    BlockStored,
    Fetch,
    KvEvent,
    PutBlock,
    RequestId,
    Seconds,
    StepPlan,
)

from ..coming_fetches import ComingFetches
from ..kv_teller import KvTeller
from ..worker_host import WorkerHost
from ..worker_store import end_fetch
from .bulk_taker import Links
from .fleet_store import FleetStore, Found

_COPIES_AT_ONCE = 16
"""Blocks of a put that share one set-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """How a worker stands to its store. `private`: what the store has is told by the worker, as
    only those of its host reach it."""

    store: FleetStore
    link: LinkTime
    links: Links
    timeout_s: Seconds
    private: bool


@dataclass(frozen=True, slots=True)
class _Coming:
    """A fetch on its way: what was found for it, and how much of that comes in time."""

    found: Found
    blocks: int


class FleetStoreUser:
    """Of one life of a worker. Implements `WorkerStore` and, for its fetches, `FetchSide`."""

    groups = 1
    """A fetch comes at once."""

    def __init__(self, life: WorkerHost, beside: Beside) -> None:
        self.coming = ComingFetches(self, life.process.call_at, _never_in_parts)
        self._life, self._beside, self._store = life, beside, beside.store
        self._loop = life.network.loop
        self._node = life.process.name
        self._name = life.process.incarnation
        self._over = False
        self._queue: PutQueue[str] = PutQueue()
        self._fresh: dict[BlockKey, Waiting] = {}
        self._queued: Counter[BlockKey] = Counter()
        """How often each block is in the queue: again, while it is copied, if the store is lost."""
        self._unput: dict[BlockKey, None] = {}
        """Blocks that are to be put, and still lie where they were computed."""
        self._putting = False
        self._fetching: dict[tuple[RequestId, int], Seconds] = {}
        """When each fetch began."""
        self._coming: dict[tuple[RequestId, int], _Coming] = {}
        self._forget: Callable[[], None] = lambda: None
        self._store.on_lost.append(self._offer_all)
        life.process.at_crash(self._end)

    def __len__(self) -> int:
        """Fetches that have not ended."""
        return len(self._fetching)

    def tell_by(self, teller: KvTeller) -> None:
        """See `WorkerStore`."""
        if self._beside.private:
            listeners = self._store.listeners
            teller.beside = self._store.held
            listeners.append(teller.note)
            self._forget = lambda: listeners.remove(teller.note)

    def _end(self) -> None:
        """The worker has died."""
        self._over = True
        self._store.on_lost.remove(self._offer_all)
        self._forget()
        self._store.left(self._name)

    # ── puts ─────────────────────────────────────────────────────────────────────────────────

    def listen(self, event: KvEvent) -> None:
        """See `WorkerStore`."""
        match event:
            case BlockStored():
                self._fresh[event.key] = _waiting(event)
            case BlockRemoved(key=key, doubtful=doubtful):
                self._fresh.pop(key, None)
                self._unput.pop(key, None)
                if doubtful:
                    self._store.doubt(key)

    def put(self) -> None:
        """See `WorkerStore`: what waits is copied when the link has time for it."""
        if not self._fresh:
            return
        fresh = list(self._fresh.values())
        self._fresh.clear()
        taken = self._queue.add(self._name, fresh)
        keys = [one.block.key for one in fresh[:taken]]
        self._queued.update(keys)
        self._unput |= dict.fromkeys(keys)
        if not self._putting:
            self._put_some()

    def _offer_all(self) -> None:
        """The store has lost what it had: what is still named here is put anew, oldest first."""
        scheduler = self._life.scheduler
        named = (scheduler.named_block(key) for key in scheduler.named_blocks())
        self._fresh |= {block.key: _waiting(block) for block in named if block is not None}
        self.put()

    def _put_some(self) -> None:
        while turn := self._queue.take(_COPIES_AT_ONCE):
            keys = [one.block.key for one in turn[1] if self._begin_put(one)]
            if keys:
                self._putting = True
                took_s = self._seconds(len(keys))
                way = ("put", self._node)
                ends_at = self._beside.links.carry((way,), took_s, self._loop.now)
                self._loop.call_at(ends_at, lambda keys=keys: self._put(keys))
                return
        self._putting = False

    def _begin_put(self, one: Waiting) -> bool:
        """Whether there is anything to copy."""
        key = one.block.key
        self._queued[key] -= 1
        begun = key in self._unput and self._store.begin_put(one.block, one.tenant, self._name)
        if not begun:
            self._tried(key)
        return begun

    def _tried(self, key: BlockKey) -> None:
        """It is not to be put any more, unless it is in the queue again."""
        if self._queued[key] <= 0:
            del self._queued[key]
            self._unput.pop(key, None)

    def _put(self, keys: list[BlockKey]) -> None:
        """They are copied, if their pages are what they were."""
        if self._over:
            return
        damage = self._life.crossed(Boundary.PUT, self._node, STORE)
        if self._over:
            return  # it died in the midst of this
        for key in keys:
            self._store.end_put(key, key in self._unput and damage is None)
            self._tried(key)
        self._put_some()

    # ── fetches ──────────────────────────────────────────────────────────────────────────────

    def fetch(self) -> None:
        """See `WorkerStore`."""
        for fetch in self._life.scheduler.fetches():
            self._fetching[fetch.request, fetch.attempt] = self._loop.now
            self._store.locate(
                fetch.keys,
                fetch.tenant,
                holder=self._name,
                wait_s=LOCATE_SHARE * self._beside.timeout_s,
                then=lambda found, fetch=fetch: self._located(fetch, found),
            )

    def _located(self, fetch: Fetch, found: Found) -> None:
        """The link carries what comes in time."""
        if self._over:
            self._store.release(found.lease)
            return
        key, now, links = (fetch.request, fetch.attempt), self._loop.now, self._beside.links
        way, deadline = ("in", self._node), self._fetching[key] + self._beside.timeout_s
        blocks = min(found.blocks, self._blocks_in(deadline - links.free_at(way, now)))
        self._coming[key] = _Coming(found, blocks)
        ends_at = now + self._beside.link.setup_s
        if blocks:
            ends_at = links.carry((way,), self._seconds(blocks), now)
        if blocks < found.blocks:
            ends_at = max(now, deadline)
        self.coming.begin(fetch, self._life.now, ends_at - now, self._fetched)

    def _fetched(self, fetch: Fetch, good: tuple[bool, ...]) -> None:
        if self._over:
            return  # it died while it copied
        began = self._fetching.pop((fetch.request, fetch.attempt))
        end_fetch(self._life, fetch, good, self._loop.now - began)

    def copy(self, fetch: Fetch) -> tuple[bool, ...]:
        """See `FetchSide`. What the store has lost meanwhile, or given to others as the lease ran
        out, has not come."""
        coming = self._coming.pop((fetch.request, fetch.attempt))
        found, blocks = coming.found, coming.blocks
        stayed = self._store.release(found.lease)
        if not stayed:
            blocks = min(blocks, self._store.present(fetch.keys))
        if found.life != self._store.lives:
            blocks = 0
        if blocks and self._life.crossed(Boundary.FETCH, STORE, self._node) is not None:
            blocks = 0
        return tuple(number < blocks for number in range(len(fetch.keys)))

    def late(self, fetch: Fetch) -> Seconds:
        """See `FetchSide`."""
        return 0.0

    def spoil(self, plan: StepPlan) -> None:
        """See `FetchSide`: nobody looks at content."""

    def _seconds(self, blocks: int) -> Seconds:
        """How long so many take over the link."""
        size_bytes = blocks * self._store.size.block_bytes
        return self._life.process.slow_factor * self._beside.link.seconds(size_bytes)

    def _blocks_in(self, left_s: Seconds) -> int:
        """How many come over the link in that time."""
        first_s, both_s = self._seconds(1), self._seconds(2)
        if left_s < first_s:
            return 0
        return 1 + int((left_s - first_s) / (both_s - first_s))


def _never_in_parts(
    _request: RequestId, _attempt: int, _here: int, _groups: int, _group_s: Seconds
) -> None:
    """No fetch comes in groups of layers."""


def _waiting(block: BlockStored) -> Waiting:
    return Waiting(block.tenant, PutBlock(key=block.key, parent=block.parent, pages=()))
