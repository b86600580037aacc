"""A store's life: who uses it, and which tenancy's blocks it has."""

import asyncio
import gc
import logging
import os
import secrets
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from antiphon.core.joining import same_pages
from antiphon.core.kv.lineage import lineage_in
from antiphon.core.store_joining import Tenancy, judge_pool_hello, judge_store_hello
from antiphon.errors import PeerError, UsageError
from antiphon.live.kv_journal import KvJournal
from antiphon.live.started_threads import started_threads
from antiphon.store.disk import DiskTier, Fsync, PrivateFolder
from antiphon.store.record import KvOrigin
from antiphon.store.record.record_seal import RecordSeal
from antiphon.store.remote import RemoteTier
from antiphon.store.remote_values import RemoteValues
from antiphon.store.transfer import MappedRegion
from antiphon.types import (
    BlockKey,
    Config,
    Incarnation,
    KvChange,
    PoolHello,
    PoolWelcome,
    Seconds,
    StoreHello,
    StoreRefusal,
    StoreRefused,
    StoreWatch,
    StoreWelcome,
    Tier,
)

from .disk_blocks import DiskBlocks
from .host_memory import HostBlocks, HostMemory
from .operator import StoreOperator
from .peers import Alone, Peers
from .pool.pool_member import PoolMember
from .pool.pool_session import PoolSession
from .pool.whereabouts import Whereabouts
from .remote_blocks import RemoteBlocks
from .tiered_blocks import Source, TieredBlocks
from .watcher import Watcher
from .worker_session import WorkerSession

MAX_SESSIONS = 512
"""A process and its successor may be here at once, for each worker of a full cluster."""
MAX_WATCHERS = 16

_log = logging.getLogger(__name__)


class KvStore:
    """Implements `port.Host` and `pool_port.Host`. `disk_folder` or `remote` None: no such tier;
    `pooled` None: it is in no pool; `seal` None: records are plain. The folder is closed by
    `close`. `broken` gets the first law that is broken in what the store does by itself: nothing
    can be trusted then.
    """

    def __init__(
        self,
        config: Config,
        disk_folder: PrivateFolder | None,
        remote: RemoteValues | None,
        pooled: Whereabouts | None = None,
        *,
        seal: RecordSeal | None = None,
        broken: Callable[[BaseException], None],
        clock: Callable[[], Seconds],
    ) -> None:
        self.incarnation = Incarnation(secrets.token_hex(8))
        self.journal = KvJournal(self._held)
        self._all = config
        self._config = config.store
        self._pooled = pooled
        self._disk_folder = disk_folder
        self._values = remote
        self._seal = seal
        self._broken = broken
        self._clock = clock
        self._blocks: TieredBlocks | None = None
        self._changing = asyncio.Lock()
        self._sessions: dict[WorkerSession, None] = {}
        self._coming: dict[int, Tenancy] = {}
        self._numbers = 0
        self._watchers: dict[Watcher, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._mapping = started_threads(1, "kv-map")

    @property
    def blocks(self) -> TieredBlocks | None:
        """Those of the last tenancy; None before the first worker's hello."""
        return self._blocks

    @property
    def workers(self) -> int:
        """Workers that are here."""
        return len(self._sessions)

    async def hand_over(self, within_s: Seconds) -> None:
        """Once no worker is here any more, and while the pool still reads: see `Peers`."""
        if self._blocks is not None:
            await self._blocks.peers.hand_over(within_s)

    async def close(self) -> None:
        """Once no stream lives: end what is under way, and flush what is on disk."""
        async with self._changing:
            if self._blocks is not None:
                await self._blocks.close()
                self._blocks = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._mapping.shutdown(wait=False)
        if self._disk_folder is not None:
            self._disk_folder.close()

    # ── callers ──────────────────────────────────────────────────────────────────────────────

    async def admit(
        self, hello: StoreHello, descriptor: int
    ) -> StoreRefused | tuple[WorkerSession, StoreWelcome, int]:
        """See `port.Host`."""
        tenancy = Tenancy(hello.identity, hello.kv)
        if refused := self._objection(hello):
            return refused
        self._numbers += 1
        number = self._numbers
        self._coming[number] = tenancy
        try:
            blocks = await self._blocks_of(tenancy)
            memory = await self._mapped(descriptor, blocks.memory)
        except (PeerError, UsageError) as error:
            return StoreRefused(StoreRefusal.INVALID, str(error))
        finally:
            del self._coming[number]
        name = f"{hello.worker}/{hello.incarnation}/{number}"
        session = WorkerSession(
            Source(name, hello.numerics, memory),
            blocks,
            lineage=lineage_in(hello.numerics),
            lease_ttl_s=self._config.lease_ttl_s,
            longest_wait_s=self._config.fetch_timeout_s,
            spawn=self.spawn,
            on_over=self._sessions.pop,
        )
        self._sessions[session] = None
        welcome = StoreWelcome(
            store=self.incarnation, kv=blocks.memory.shape, lease_ttl_s=self._config.lease_ttl_s
        )
        return session, welcome, blocks.memory.region.fd

    async def admit_store(self, hello: PoolHello) -> StoreRefused | tuple[PoolSession, PoolWelcome]:
        """See `pool_port.Host`. A store that no worker has come to yet takes up the pool's
        tenancy; one that has another tenancy's workers refuses."""
        tenancy, there = Tenancy(hello.identity, hello.kv), self._blocks
        pooled = there is not None and isinstance(there.peers, PoolMember) and there.peers.called
        refused = judge_pool_hello(
            hello,
            None if there is None else there.tenancy,
            in_use=bool(self._sessions or self._coming or pooled),
            memory_bytes=self._config.memory_bytes,
        )
        if refused is not None:
            return refused
        try:
            blocks = await self._blocks_of(tenancy)
        except UsageError as error:
            return StoreRefused(StoreRefusal.INVALID, str(error))
        if not isinstance(blocks.peers, PoolMember):
            return StoreRefused(StoreRefusal.INVALID, "this store is in no pool")
        if hello.name == blocks.peers.node.name:
            text = f"this store is called {hello.name} itself: give each a name of its own"
            return StoreRefused(StoreRefusal.INVALID, text)
        return blocks.peers.welcome(hello)

    def watch(self, watch: StoreWatch) -> StoreRefused | Watcher:
        """See `port.Host`."""
        if len(self._watchers) >= MAX_WATCHERS:
            return StoreRefused(StoreRefusal.FULL, f"{MAX_WATCHERS} gateways are here")
        watcher = Watcher(
            self.journal.feed(),
            StoreOperator(lambda: self._blocks, self._config),
            spawn=self.spawn,
            on_over=self._watchers.pop,
        )
        self._watchers[watcher] = None
        return watcher

    def _objection(self, hello: StoreHello) -> StoreRefused | None:
        present = [session.tenancy for session in self._sessions]
        return judge_store_hello(
            hello,
            [*present, *self._coming.values()],
            memory_bytes=self._config.memory_bytes,
            max_workers=MAX_SESSIONS,
        )

    async def _mapped(self, descriptor: int, memory: HostMemory) -> MappedRegion:
        """On a thread, with a descriptor of its own: it is mapped to the end whoever waits."""
        mine = os.dup(descriptor)

        def work() -> MappedRegion:
            try:
                return MappedRegion(mine, memory.region)
            finally:
                os.close(mine)

        mapping = asyncio.get_running_loop().run_in_executor(self._mapping, work)
        try:
            return await asyncio.shield(mapping)
        except asyncio.CancelledError:
            mapping.add_done_callback(_unmap)
            raise

    # ── blocks ───────────────────────────────────────────────────────────────────────────────

    async def _blocks_of(self, tenancy: Tenancy) -> TieredBlocks:
        """Those that are here if they are the tenancy's, else none yet: nobody uses the others.

        Raises `UsageError`.
        """
        async with self._changing:
            blocks = self._blocks
            if blocks is not None and _same(blocks.tenancy, tenancy):
                return blocks
            if blocks is not None:
                self._blocks = None
                await asyncio.shield(self.spawn(blocks.close()))
                del blocks
                gc.collect()  # its parts know each other, and its memory is large
            peers = self._peers(tenancy)

            def note(change: KvChange) -> None:
                self.journal.note(change)
                peers.changed(change)

            made: Peers | TieredBlocks = peers
            try:
                made = blocks = TieredBlocks(
                    tenancy,
                    self._config,
                    note=note,
                    open_slower=lambda host: self._slower(tenancy, host, note, peers),
                    peers=peers,
                    spawn=self.spawn,
                    clock=self._clock,
                )
                blocks.start()
            except BaseException:  # workers ask again: each time anew
                await asyncio.shield(self.spawn(made.close()))
                raise
            self._blocks = blocks
            return blocks

    def _peers(self, tenancy: Tenancy) -> Peers:
        if self._pooled is None:
            return Alone()
        return PoolMember(
            tenancy,
            self._all,
            self._pooled,
            note=self.journal.note,
            spawn=self.spawn,
            clock=self._clock,
        )

    def _slower(
        self,
        tenancy: Tenancy,
        host: HostBlocks,
        note: Callable[[KvChange], None],
        peers: Peers,
    ) -> tuple[DiskBlocks | None, RemoteBlocks | None]:
        """Both or none: a disk does not stay open without the other."""
        disk = self._disk(tenancy, host, note, peers)
        try:
            return disk, self._remote(tenancy, host)
        except UsageError:
            if disk is not None:
                disk.abandon()
            raise

    def _disk(
        self,
        tenancy: Tenancy,
        host: HostBlocks,
        note: Callable[[KvChange], None],
        peers: Peers,
    ) -> DiskBlocks | None:
        """A disk that can't keep these blocks costs the disk tier, no more."""
        if self._disk_folder is None:
            return None
        try:
            tier = DiskTier(
                self._disk_folder,
                KvOrigin.of(tenancy.kv, tenancy.identity),
                limit_bytes=self._config.disk_bytes,
                fsync=Fsync(self._config.fsync),
                seal=self._seal,
                clock=self._clock,
            )
        except UsageError as error:
            _log.warning("no blocks are kept on disk: %s", error)
            return None
        try:
            return DiskBlocks(tier, host, note=note, recovered=peers.recovered)
        except UsageError:
            tier.close()
            raise

    def _remote(self, tenancy: Tenancy, host: HostBlocks) -> RemoteBlocks | None:
        if self._values is None:
            return None
        origin = KvOrigin.of(tenancy.kv, tenancy.identity)
        tier = RemoteTier(self._values, origin, seal=self._seal)
        try:
            return RemoteBlocks(tier, host, note=self.journal.note)
        except UsageError:
            tier.close()
            raise

    def _held(self) -> Iterator[tuple[BlockKey, Tier]]:
        return iter(()) if self._blocks is None else self._blocks.held()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of this store: ended by `close`, and what it raises is told to `broken`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broken(error)


def _same(one: Tenancy, other: Tenancy) -> bool:
    return one.identity == other.identity and same_pages(one.kv, other.kv)


def _unmap(mapping: asyncio.Future[MappedRegion]) -> None:
    if not mapping.cancelled() and mapping.exception() is None:
        mapping.result().close()
