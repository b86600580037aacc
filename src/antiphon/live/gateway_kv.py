"""What a gateway's process hears of KV, and what operators can do with it.

workers ── KV news ──┐
                     ├──► Router.heard_kv (on record) ──► its index
WatchedStore ────────┤                                      │
HostStores ──────────┘                                      │
     ▲                          KvDesk ◄── /admin/kv/… ─────┤
     └── StoreAsk ────────────────┘                         └──► metrics
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from antiphon.core.recorder import Entry, recorded
from antiphon.core.router import KV_METHODS, ROUTER, Router
from antiphon.types import (
    STORE,
    Config,
    HostName,
    Incarnation,
    KvReplay,
    Member,
    ModelInfo,
    Seconds,
    Tier,
    TierStats,
    WorkerId,
    WorkerInfo,
)

from .admin.kv_desk import KvDesk
from .admin.kv_naming import KvNaming
from .admin.status import StoreNow
from .gateway import KvSeen, Prompts
from .gateway.auth import Tenant
from .host_stores import HostStores
from .kv_journal import KvNews
from .network import reach_of
from .socket_folder import store_socket
from .watched_store import WatchedStore

_CHANGED = 0.1
"""By so much of what the router has heard a time must have changed to be told again."""


class GatewayKv:
    """Feeds `router`, and records what it is told. With `store.enabled` false there is no store
    here; those of other hosts are `hosts`, where any can be.

    `on_presence` is called when the store came, or went.
    """

    def __init__(
        self,
        router: Router,
        config: Config,
        sockets: Path,
        *,
        clock: Callable[[], Seconds],
        log_decision: Callable[[Entry], None] | None = None,
        on_presence: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_presence = on_presence
        self._index = router.kv_index
        self._router = router
        if log_decision is not None:
            self._router = recorded(ROUTER, router, KV_METHODS, log_decision)
        self._config = config
        self._clock = clock
        self._block_s: dict[WorkerId, Seconds] = {}
        """How long a block takes each store that comes from another, as the router heard it."""
        self._store: WatchedStore | None = None
        if path := store_socket(sockets, config.store):
            self._store = WatchedStore(
                path,
                Incarnation(secrets.token_hex(8)),
                config.cluster,
                on_news=partial(self._heard_store, STORE),
                on_left=partial(self._store_left, STORE),
                on_came=on_presence,
                on_stats=partial(self._counted, STORE),
                clock=clock,
            )
        self.hosts: HostStores | None = None
        if (reach := reach_of(config.network)) is not None:
            self.hosts = HostStores(
                reach,
                config.cluster,
                on_news=self._heard_store,
                on_left=self._store_left,
                on_stats=self._counted,
                clock=clock,
            )
        self.seen = KvSeen(
            index=lambda: self._index.counts, store=self._store, hosts=self._host_stores
        )

    @property
    def store_present(self) -> bool | None:
        """Whether the store answers; None: there is to be none."""
        return None if self._store is None else self._store.present

    def store_now(self) -> StoreNow | None:
        """The store at this moment; None: there is to be none."""
        if self._store is None:
            return None
        return StoreNow(
            socket=None if self._config.store.socket is None else str(self._store.address),
            present=self._store.present,
            pid=self._store.pid,
            stats=self._store.stats,
            pool=self._store.pool,
        )

    def host_stores_now(self) -> Mapping[str, StoreNow]:
        """Those of other hosts at this moment, by host."""
        return {
            host: StoreNow(
                socket=str(store.address),
                present=store.present,
                pid=None,
                stats=store.stats,
                pool=store.pool,
            )
            for host, store in self._host_stores().items()
        }

    def _host_stores(self) -> Mapping[HostName, WatchedStore]:
        return {} if self.hosts is None else self.hosts.watched

    def heard(self, worker: WorkerInfo, news: KvNews) -> KvReplay | None:
        """A worker says what it holds. Returns what it is to say again."""
        return self._router.heard_kv(worker.id, worker.incarnation, news, self._clock())

    def desk(
        self,
        prompts: Prompts,
        model: ModelInfo,
        tenants: Sequence[Tenant],
        members: Callable[[], Sequence[Member]],
    ) -> KvDesk:
        """What operators may ask. Blocks are named as the workers that are there name them."""

        def numerics() -> Sequence[str]:
            return sorted({member.info.model.numerics for member in members()} or {model.numerics})

        naming = KvNaming(prompts, model, self._config.kv.block_tokens, tenants, numerics)
        return KvDesk(
            naming,
            self._config.kv,
            members=members,
            index=self._index,
            store=self._store,
            hosts=self._host_stores,
        )

    async def watch(self) -> None:
        """Watch the stores, if there are to be any, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._store is not None:
                tasks.create_task(self._store.run())
            if self.hosts is not None:
                tasks.create_task(self.hosts.run())

    def follow(self, members: Sequence[Member]) -> None:
        """These workers are there now, each with its host's store."""
        if self.hosts is not None:
            self.hosts.follow([member.info for member in members])

    def _heard_store(self, store: WorkerId, life: Incarnation, news: KvNews) -> KvReplay | None:
        return self._router.heard_kv(store, life, news, self._clock())

    def _store_left(self, store: WorkerId) -> None:
        self._block_s.pop(store, None)
        self._router.kv_holder_left(store, self._clock())
        if store == STORE:
            self._on_presence()

    def _counted(self, store: WorkerId, stats: Sequence[TierStats]) -> None:
        """Tell the router how long blocks take from other stores, when that has changed enough, and
        when the store says it no more."""
        block_s = next((one.block_s for one in stats if one.tier is Tier.PEER), None)
        before_s = self._block_s.get(store)
        if block_s is None:
            if before_s is not None:
                del self._block_s[store]
                self._router.heard_peer_time(store, None, self._clock())
        elif before_s is None or abs(block_s - before_s) > _CHANGED * before_s:
            self._block_s[store] = block_s
            token_s = block_s / self._config.kv.block_tokens
            self._router.heard_peer_time(store, token_s, self._clock())
