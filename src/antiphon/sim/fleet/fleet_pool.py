"""The stores of a fleet's hosts as one pool, in virtual time: the live pool's decisions
(`core.store_pool`), and what they cost on the network between hosts.

    host 0: FleetStore ◄── PoolPart ── words, after a delay ──► PoolPart ──► FleetStore :host 1
                              └──────── blocks, over both hosts' links ──────────┘

A block that a peer has comes into the store's own memory first, as live: from there its worker
copies it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from antiphon.core.store_pool import POOLED_TIERS, Announced, PoolNode, PoolRules, StorePool
from antiphon.perf import LinkTime
from antiphon.types import (
    BlockKey,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    LeaseId,
    Seconds,
    StoreName,
    Tier,
)

from ..kv_teller import ChangeTeller
from ..virtual_loop import VirtualLoop
from .bulk_taker import Links, Way
from .fleet_store import FleetStore

Ended: TypeAlias = Callable[[bool], None]


class PoolPart:
    """One host's part. Implements `fleet_store.Beyond`."""

    def __init__(self, pool: "FleetPool", number: int, weight: int, block_bytes: int) -> None:
        self.name = StoreName(f"host{number}")
        life = Incarnation(f"{self.name}#1")
        self.node = PoolNode(name=self.name, incarnation=life, weight=weight)
        rules = PoolRules(block_bytes=block_bytes, bytes_per_s=pool.network.bytes_per_s)
        self.decisions = StorePool(self.node, rules, listen=self._peers_have)
        self.teller = ChangeTeller(self._said, pool.kept_changes)
        self._announced = Announced(self.teller.note)
        self._pool = pool
        self._store: FleetStore | None = None
        self._leases = 0
        self._about_to_say = self._about_to_place = False

    @property
    def store(self) -> FleetStore:
        """The host's."""
        assert self._store is not None
        return self._store

    def attach(self, store: FleetStore) -> None:
        """This is the host's store. Called once."""
        self._store = store
        store.listeners.append(self._changed)

    # ── fleet_store.Beyond ───────────────────────────────────────────────────────────────────

    def first_to_go(self, idle: Callable[[BlockKey], bool], now: Seconds) -> BlockKey | None:
        """See `Beyond`; so all below."""
        return self.decisions.first_to_go(idle, now)

    def has(self, key: BlockKey) -> bool:
        """A peer that may be asked."""
        return self.decisions.peers_have(key, self._pool.loop.now)

    def held(self) -> Iterator[BlockKey]:
        """As a gateway is told."""
        return iter(list(self.decisions.pooled()))

    def is_home(self, key: BlockKey) -> bool:
        """As things stand."""
        return self.decisions.is_home(key)

    def used(self, keys: tuple[BlockKey, ...]) -> None:
        """Counted."""
        self.decisions.used(keys, self._pool.loop.now)

    def was_put(self, key: BlockKey) -> None:
        """It goes home by and by."""
        self.decisions.was_put(key)
        self._place_soon()

    def bring(self, key: BlockKey, then: Ended) -> Seconds | None:
        """From whoever has it. `then` is told, once, whether it came."""
        pool, sources = self._pool, self.decisions.sources
        now, size = pool.loop.now, self.decisions.rules.block_bytes
        holder = self.decisions.source(key, now)
        if holder is None:
            return None
        sources.asked(holder.name, size)
        lender = pool.parts[holder.name]
        lease = self._new_lease()
        if not lender.store.lend(key, lease, self.name):
            sources.missed(holder.name, size)
            return None
        life, ends_at = lender.store.lives, pool.carry(lender.name, self.name, now)

        def ended() -> None:
            stayed = lender.store.release(lease)
            good = stayed and lender.store.lives == life
            if good:
                sources.came(holder.name, size, pool.loop.now - now)
            else:
                sources.failed(holder.name, size, pool.loop.now)
            then(good)

        pool.loop.call_at(ends_at, ended)
        return ends_at

    # ── words ────────────────────────────────────────────────────────────────────────────────

    def hear(self, speaker: "PoolPart", word: KvDump | KvEvents) -> None:
        """A peer says what it has. Mutates."""
        now = self._pool.loop.now
        wish = self.decisions.heard(speaker.name, speaker.node.incarnation, word, now)
        if wish is not None:
            again = speaker.teller.again(wish)
            self._pool.after_delay(lambda: self.hear(speaker, again))
        while self.decisions.review():
            pass
        self._place_soon()

    def meet(self, peer: "PoolPart") -> None:
        """A peer is there from now on. Mutates."""
        self.decisions.joined(peer.node)
        self.hear(peer, peer.teller.dump())

    def _said(self) -> Iterator[tuple[BlockKey, Tier]]:
        return ((key, tier) for key, tier in self.store.held() if tier in POOLED_TIERS)

    def _changed(self, change: KvChange) -> None:
        """What changes at the same time is said together."""
        if change.tier not in POOLED_TIERS:
            return
        self._announced.changed(change)
        self.decisions.changed(change)
        if not self._about_to_say:
            self._about_to_say = True
            self._pool.loop.call_at(self._pool.loop.now, self._say)

    def _say(self) -> None:
        self._about_to_say = False
        news = self.teller.news()
        for peer in self._pool.others(self):
            self._pool.after_delay(lambda peer=peer: peer.hear(self, news))

    def _peers_have(self, change: KvChange) -> None:
        if self._store is not None:
            self._store.tell(change)

    # ── on the way home ──────────────────────────────────────────────────────────────────────

    def _place_soon(self) -> None:
        if len(self.decisions.placing) and not self._about_to_place:
            self._about_to_place = True
            self._pool.loop.call_at(self._pool.loop.now, self._place)

    def _place(self) -> None:
        """One home is told of its blocks, after the changes that say where they are; it takes them
        in one after another."""
        self._about_to_place = False
        turn = self.decisions.placing.take()
        if turn is not None:
            home, keys = turn
            self._pool.after_delay(lambda: self._pool.parts[home].take_in(keys, self))
        self._place_soon()

    def take_in(self, keys: Sequence[BlockKey], peer: "PoolPart") -> None:
        """This store is home to these, which that one has."""
        for key in keys:
            self.store.take_in(key, peer.store)

    def _new_lease(self) -> LeaseId:
        self._leases += 1
        return LeaseId(f"{self.name}-{self._leases}")


class FleetPool:
    """All parts, and the network between their hosts: one link out and one in for each. Mutable."""

    def __init__(
        self, network: LinkTime, links: Links, loop: VirtualLoop, kept_changes: int
    ) -> None:
        self.network, self.loop, self.kept_changes = network, loop, kept_changes
        self.parts: dict[StoreName, PoolPart] = {}
        self._links = links

    def part(self, number: int, weight: int, block_bytes: int) -> PoolPart:
        """A new host's; `join` it once its store is attached."""
        return PoolPart(self, number, weight, block_bytes)

    def join(self, part: PoolPart) -> None:
        """It is in the pool. Mutates."""
        for peer in list(self.parts.values()):
            peer.meet(part)
            part.meet(peer)
        self.parts[part.name] = part

    def others(self, part: PoolPart) -> list[PoolPart]:
        """All but that one."""
        return [peer for peer in self.parts.values() if peer is not part]

    def after_delay(self, action: Callable[[], None]) -> None:
        """What a message does when it has come."""
        self.loop.call_at(self.loop.now + self.network.setup_s, action)

    def carry(self, lender: StoreName, reader: StoreName, now: Seconds) -> Seconds:
        """When a block that is asked for now has come. Mutates: both links are busy until then."""
        size = self.parts[lender].decisions.rules.block_bytes
        ways: tuple[Way, ...] = (("pool out", lender), ("pool in", reader))
        return self._links.carry(ways, self.network.seconds(size), now)
