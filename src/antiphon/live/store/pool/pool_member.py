"""A store's part in a pool, for one tenancy: carries out what `core.store_pool` decides.

    the tiers ── changed, was_put, used ──► StorePool ──► placing ──► PoolPlace to the home
        ▲                                      ▲  │ source
        └── fill ◄── PeerReads ◄── PoolLink ───┘  └── first_to_go
        └── HomeMoves ◄── PoolPlace of others

Nothing that a peer does ends anything but what was asked of it.
"""

import asyncio
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from antiphon.core.data_access import wrong_in_access
from antiphon.core.store_joining import Tenancy, block_bytes, blocks_within
from antiphon.core.store_pool import (
    NOBODY,
    POOLED_TIERS,
    RAW,
    Announced,
    FetchTerms,
    PoolNode,
    PoolRules,
    Sender,
    StorePool,
)
from antiphon.core.store_pool.peer_address import MOST_PEERS, PeerAddress
from antiphon.core.tiers import Slot
from antiphon.errors import PeerError
from antiphon.live.kv_journal import KvJournal, KvNews
from antiphon.live.started_threads import started_threads
from antiphon.live.store.peers import Filled
from antiphon.live.store.tiered_blocks import TieredBlocks
from antiphon.store.record import RecordedBlock
from antiphon.store.transfer.tcp import PageClient, PageServer
from antiphon.types import (
    BlockKey,
    Config,
    Incarnation,
    KvChange,
    KvReplay,
    PoolClear,
    PoolHello,
    PoolPeer,
    PoolWelcome,
    Seconds,
    StoreName,
    Tier,
    TierStats,
)

from .chunk_reading import ChunkReading
from .coded_blocks import CodedBlocks
from .encoded_pages import PAGE_BYTES
from .farewell import hand_over
from .home_moves import HomeMoves
from .known_peers import KnownPeers, Said
from .peer_reads import PeerReads, peer_view
from .pool_link import PoolLink, clear_all
from .pool_session import PoolSession
from .whereabouts import Whereabouts

PROVED_AT_ONCE = 16
READING_THREADS = 4


class PoolMember:
    """Implements `Peers`, and `pool_link.Listener`. Lives from `attach` to `close`."""

    def __init__(
        self,
        tenancy: Tenancy,
        config: Config,
        where: Whereabouts,
        *,
        note: Callable[[KvChange], None],
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        clock: Callable[[], Seconds],
    ) -> None:
        """`note` hears of blocks that peers have. Raises `UsageError`: this tenancy's blocks can't
        be encoded as is asked for, or the profile is of another model."""
        pool = config.store_pool
        self.tenancy = tenancy
        self._coded = CodedBlocks.of(tenancy, where.coding, config.router.ttft_s)
        self.node = PoolNode(
            name=where.address.name,
            incarnation=Incarnation(secrets.token_hex(8)),
            weight=blocks_within(tenancy.kv, config.store.memory_bytes),
        )
        rules = PoolRules(
            block_bytes=block_bytes(tenancy.kv),
            bytes_per_s=pool.link_bytes_per_s,
            most_copies=pool.most_copies,
        )
        self.pool = StorePool(self.node, rules, listen=note)
        self.journal = KvJournal(self._said)
        self.announced = Announced(self.journal.note)
        self._config = config
        self._where = where
        self._spawn = spawn
        self._clock = clock
        self._blocks: TieredBlocks | None = None
        self._server: PageServer | None = None
        self._known = KnownPeers(self.node.name, self._link_to, spawn, self._forgotten)
        self._reads: dict[StoreName, PeerReads] = {}
        self._sessions: dict[PoolSession, None] = {}
        self._moves = HomeMoves(self.pool.placing, self._known.links.get)
        self._running: list[asyncio.Task[None]] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._threads = started_threads(READING_THREADS, "kv-peer")
        self._changed_some, self._to_prove = asyncio.Event(), asyncio.Event()
        self._closed = False

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def attach(self, blocks: TieredBlocks) -> None:
        """See `Peers`. Raises `UsageError` if pages can't be served where they are to be."""
        self._blocks = blocks
        data, must_seal = self._where.data, self._where.sealed
        self._server = PageServer(blocks.memory.region, data, must_seal=must_seal)
        self._coded.open(blocks.own_work, data, must_seal=must_seal, spawn=self._spawn)
        for text in self._config.store_pool.peers:
            self._known.hear_of(text, Said.IN_CONFIG)
        self._moves.attach(blocks)
        work = (self._review(), self._prove(), self._moves.place(), self._moves.take_in())
        self._running = [self._spawn(one) for one in work]

    async def hand_over(self, within_s: Seconds) -> None:
        """See `Peers`."""
        await hand_over(self.pool, self._known.links.get, self._moves.placed, within_s=within_s)

    async def close(self) -> None:
        """See `Peers`."""
        self._closed = True
        ending = [*self._running, *self._known.close()]
        for task in ending:
            task.cancel()
        for session in list(self._sessions):
            session.end("the store leaves this pool")
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.gather(*(reads.close() for reads in self._reads.values()))
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._server is not None:
            await asyncio.to_thread(self._server.close)
        await self._coded.close()
        self._threads.shutdown(wait=False)
        self._blocks = None

    @property
    def called(self) -> bool:
        """Whether another store reads here."""
        return bool(self._sessions)

    def _link_to(self, peer: PeerAddress) -> PoolLink:
        return PoolLink(peer, self, self._where.dial, self._config.cluster, clock=self._clock)

    def _forgotten(self, name: StoreName) -> None:
        self._coded.forget(name)
        self.pool.sources.drop(name)

    # ── stores that call ─────────────────────────────────────────────────────────────────────

    def welcome(self, hello: PoolHello) -> tuple[PoolSession, PoolWelcome]:
        """Let a store in that was found to be of this pool, and call it back."""
        assert self._blocks is not None
        assert self._server is not None
        server, access = self._server, self._server.admit()
        encoded = self._coded.admit()

        def over(session: PoolSession) -> None:
            self._sessions.pop(session, None)
            server.dismiss(access)
            self._coded.dismiss(encoded)

        session = PoolSession(
            hello.name,
            f"pool/{hello.name}/{hello.incarnation}/{secrets.token_hex(4)}",
            self._blocks,
            self.journal.feed(),
            lease_ttl_s=self._config.store.lease_ttl_s,
            placed=self._moves.asked,
            encoded=self._coded.lender,
            spawn=self._spawn,
            on_over=over,
        )
        self._sessions[session] = None
        known = [link.address for name, link in self._known.links.items() if name != hello.name]
        self._known.hear_of(hello.address, Said.BY_ITSELF, name=hello.name)
        welcome = PoolWelcome(
            name=self.node.name,
            incarnation=self.node.incarnation,
            blocks=self.node.weight,
            kv=self._blocks.memory.shape,
            data=access,
            known=tuple(map(str, known)),
            encoded=encoded,
            encoded_page_bytes=PAGE_BYTES if encoded is not None else 0,
            level=self._coded.book.setting.level,
            profile=self._coded.book.setting.profile,
        )
        return session, welcome

    # ── pool_link.Listener ───────────────────────────────────────────────────────────────────

    def hello(self) -> PoolHello:
        """See `Listener`."""
        return PoolHello(
            name=self.node.name,
            incarnation=self.node.incarnation,
            identity=self.tenancy.identity,
            kv=self.tenancy.kv,
            blocks=self.node.weight,
            address=str(self._where.address),
        )

    def came(self, link: PoolLink, node: PoolNode, welcome: PoolWelcome) -> None:
        """See `Listener`."""
        if self._closed or self._blocks is None:
            raise PeerError("this store leaves the pool")
        memory = self._blocks.memory
        for access in (welcome.data, *([welcome.encoded] if welcome.encoded else [])):
            if problem := wrong_in_access(access, here=self._where.here):
                raise PeerError(f"its pages can't be read: {problem}")
        if welcome.kv.page_bytes != memory.shape.page_bytes:
            raise PeerError("its pages are of another size")
        self._reads[node.name] = PeerReads(
            link,
            PageClient(welcome.data, memory.region),
            memory,
            self.pool.sources,
            self._coded.book,
            self._coded.pull(welcome, memory),
            self._coded.meets(welcome),
            threads=self._threads,
            spawn=self._spawn,
            clock=self._clock,
        )
        self.pool.joined(node)
        self._changed_some.set()
        for text in welcome.known[:MOST_PEERS]:
            self._known.hear_of(text, Said.BY_OTHERS)

    def news(self, link: PoolLink, node: PoolNode, news: KvNews) -> KvReplay | None:
        """See `Listener`."""
        wish = self.pool.heard(node.name, node.incarnation, news, self._clock())
        self._changed_some.set()
        return wish

    def left(self, link: PoolLink, node: PoolNode) -> None:
        """See `Listener`."""
        if self._closed:
            return
        reads = self._reads.pop(node.name)
        task = self._spawn(reads.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        self._moves.forget(node.name)
        self.pool.left(node.name, node.incarnation)
        self._changed_some.set()

    # ── Peers ────────────────────────────────────────────────────────────────────────────────

    possible = True

    @property
    def keys(self) -> Collection[BlockKey]:
        """See `Peers`; so all below."""
        return self.pool.pooled()

    def __contains__(self, key: BlockKey) -> bool:
        """Not at peers that rest."""
        return self.pool.peers_have(key, self._clock())

    def first_to_go(self, idle: Callable[[BlockKey], bool], now: Seconds) -> BlockKey | None:
        """A copy, if there is any that is not hot."""
        return self.pool.first_to_go(idle, now)

    def is_home(self, key: BlockKey) -> bool:
        """As this store sees the pool now."""
        return self.pool.is_home(key)

    def views(self) -> tuple[PoolPeer, ...]:
        """All that are known, there or not."""
        return tuple(
            peer_view(self._known.links[name], self._reads.get(name), self.pool, self._clock())
            for name in sorted(self._known.links)
        )

    def changed(self, change: KvChange) -> None:
        """Told to the peers, if it is ours to say."""
        if change.tier in POOLED_TIERS and not self._closed:
            self.pool.changed(change, exact=self.announced.changed(change))

    def inexact(self, key: BlockKey, there: bool) -> None:
        """Peers never hear of it."""
        self.announced.inexact(key, there)

    def reading(self, terms: FetchTerms) -> ChunkReading:
        """By the speed of who would be asked."""
        return ChunkReading(self._coded.book, terms, sender=self._sender, clock=self._clock)

    def _sender(self, key: BlockKey) -> Sender:
        holder = self.pool.likely_source(key, self._clock())
        name = NOBODY if holder is None else holder.name
        reads = self._reads.get(name)
        if reads is not None:
            return reads.sender()
        least = self.pool.sources.least_bytes_per_s(name)
        return Sender(name=name, bytes_per_s=least, measured=False)

    def levels(self) -> TierStats:
        """Of this tenancy."""
        speeds = {name: reads.bytes_per_s() for name, reads in self._reads.items()}
        return self._coded.stats(len(self.pool.pooled()), speeds)

    def recovered(self, key: BlockKey) -> None:
        """Read and compared before peers hear of it."""
        self.announced.recovered(key)
        self._to_prove.set()

    def was_put(self, key: BlockKey) -> None:
        """Copied to its home by and by."""
        self.pool.was_put(key)
        self._moves.look()

    def used(self, keys: Iterable[BlockKey]) -> None:
        """Counted."""
        self.pool.used(keys, self._clock())

    def doubt(self, keys: Sequence[BlockKey]) -> None:
        """Said to all that are there."""
        for link in self._known.links.values():
            link.forget(keys)

    async def clear(
        self, tenant: bytes | None, keys: Sequence[BlockKey] | None
    ) -> tuple[int, Sequence[str]]:
        """All at the same time."""
        wish = PoolClear(tenant=tenant, keys=None if keys is None else tuple(keys))
        return await clear_all(list(self._known.links.values()), wish)

    async def fill(
        self, record: RecordedBlock, slot: Slot, deadline: Seconds, level: str = RAW, call: int = 0
    ) -> Filled | None:
        """From one peer after another, until one has it."""
        tried: list[StoreName] = []
        position = 0 if self._blocks is None else self._blocks.host.position_of(record.key)
        while not self._closed and self._clock() < deadline:
            name = self._next_source(record.key, tried)
            if name is None:
                return None
            tried.append(name)
            reads = self._reads.get(name)
            if reads is not None:
                filled = await reads.read(record.key, slot, deadline, level, position, call)
                if filled is not None:
                    return filled
        return None

    def _next_source(self, key: BlockKey, tried: Sequence[StoreName]) -> StoreName | None:
        """Who says that it has it, or who asked us to take it, which we may not have heard yet."""
        holder = self.pool.source(key, self._clock(), tried)
        if holder is not None:
            return holder.name
        hint = self._moves.comes_from(key)
        return hint if hint is not None and hint not in tried else None

    def _said(self) -> Iterator[tuple[BlockKey, Tier]]:
        held = iter(()) if self._blocks is None else self._blocks.held()
        return ((key, tier) for key, tier in held if self.announced.says(key, tier))

    # ── work of its own ──────────────────────────────────────────────────────────────────────

    async def _review(self) -> None:
        """Look at what has changed, a part at a time."""
        while True:
            await self._changed_some.wait()
            self._changed_some.clear()
            while self.pool.review():
                await asyncio.sleep(0)
            self._moves.look()

    async def _prove(self) -> None:
        """Read what an earlier life has left, a few blocks at a time and no more than half of the
        time, so that fetches find a disk that is free."""
        while True:
            await self._to_prove.wait()
            keys = self.announced.to_prove(PROVED_AT_ONCE)
            disk = self._blocks.disk if self._blocks is not None else None
            if not keys or disk is None:
                self._to_prove.clear()
                continue
            began = self._clock()
            await disk.verify(keys)
            self.announced.proven(keys)
            await asyncio.sleep(self._clock() - began)
