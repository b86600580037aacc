"""The stores of a fleet in virtual time: who uses which, and how a gateway hears of them.

one store of all hosts' memory  ──► it says what it has itself, as the live store does
a pool of the hosts' stores     ──► the first host's store says what it has, and what its peers have
each host's memory for its own  ──► each worker of the host says it, as what lies beside it
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from antiphon.core.faults import Node
from antiphon.perf import LinkTime
from antiphon.types import (
    STORE,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    StoreConfig,
)

from ..kv_teller import ChangeTeller
from ..virtual_cluster import VirtualCluster
from ..virtual_loop import VirtualLoop
from ..worker_host import WorkerHost
from .bulk_taker import Links
from .fleet_pool import FleetPool
from .fleet_store import FleetStore, StoreSize
from .fleet_store_user import Beside, FleetStoreUser
from .store_plan import Reach, StorePlan

_LIFE = Incarnation(f"{STORE}#1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSetup:
    """What stores are made from. `workers`: how many there are at first."""

    plan: StorePlan
    config: StoreConfig
    workers: int
    block_bytes: int
    kept_changes: int

    @property
    def size(self) -> StoreSize:
        """Of each store. The SSDs of several hosts are read, and written, side by side."""
        plan, block_bytes = self.plan, self.block_bytes
        hosts = plan.hosts_a_store(self.workers)
        ssd = LinkTime(setup_s=plan.ssd.setup_s, bytes_per_s=plan.ssd.bytes_per_s * hosts)
        return StoreSize(
            host_blocks=hosts * (plan.host_bytes // block_bytes),
            ssd_blocks=hosts * (plan.ssd_bytes // block_bytes),
            block_bytes=block_bytes,
            ssd=ssd,
        )


class FleetStores:
    """Mutable: a store is there from its first worker on. Implements `FaultyStore`: all of them are
    hit."""

    def __init__(self, setup: StoreSetup, links: Links) -> None:
        self._setup, self._links = setup, links
        self._stores: dict[int, FleetStore] = {}
        self._pool: FleetPool | None = None
        self._places: dict[Node, int] = {}
        self._free_places: list[int] = []
        """A heap: whose workers have ended."""

    def user(self, life: WorkerHost) -> FleetStoreUser:
        """What puts and fetches for this life of a worker. Mutates."""
        plan, config = self._setup.plan, self._setup.config
        private = plan.reach is Reach.HOST
        place = self._place(life.process.name)
        host = 0 if plan.reach is Reach.FLEET else place // plan.workers_per_host
        store = self._stores.get(host)
        if store is None:
            store = self._stores[host] = self._new_store(host, life.network.loop)
        return FleetStoreUser(
            life,
            Beside(
                store=store,
                link=plan.link,
                links=self._links,
                timeout_s=config.fetch_timeout_s,
                private=private,
            ),
        )

    def _new_store(self, host: int, loop: VirtualLoop) -> FleetStore:
        setup, size = self._setup, self._setup.size
        if setup.plan.reach is not Reach.POOL:
            return FleetStore(size, setup.config, loop)
        if self._pool is None:
            self._pool = FleetPool(setup.plan.network, self._links, loop, setup.kept_changes)
        part = self._pool.part(host, size.host_blocks, size.block_bytes)
        store = FleetStore(size, setup.config, loop, part)
        part.attach(store)
        self._pool.join(part)
        return store

    def ended(self, name: Node, successor: Node | None = None) -> None:
        """That worker is gone for good, and its host has room for another: `successor`, or
        whoever comes next. What the host's memory has stays. Mutates."""
        place = self._places.pop(name)
        if successor is None:
            heappush(self._free_places, place)
        else:
            self._places[successor] = place

    def _place(self, name: Node) -> int:
        """It keeps it through all its lives. Each is taken, or free."""
        if name not in self._places:
            taken = len(self._places)
            self._places[name] = heappop(self._free_places) if self._free_places else taken
        return self._places[name]

    def attach(self, cluster: VirtualCluster) -> None:
        """From now on the cluster's gateway hears of the stores that all workers reach, if there
        are any. Called once."""
        if self._setup.plan.reach is not Reach.HOST and self._stores:
            _PoolFeed(self._stores[0], cluster, self._setup.kept_changes)

    def by_host(self) -> Mapping[int, FleetStore]:
        """All that are there; the one store of all hosts is host 0's. Does not mutate."""
        return dict(sorted(self._stores.items()))

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return sum(map(len, self._stores.values()))

    def fill(self) -> None:
        """See `FaultyStore`."""
        for store in self._stores.values():
            store.fill()

    def make_room(self) -> None:
        """See `FaultyStore`."""
        for store in self._stores.values():
            store.make_room()

    def lose_all(self) -> None:
        """See `FaultyStore`."""
        for store in self._stores.values():
            store.lose_all()


class _PoolFeed:
    """Says to each life of the gateway what the pool has: all of it first, then every change."""

    def __init__(self, store: FleetStore, cluster: VirtualCluster, kept: int) -> None:
        self._cluster = cluster
        self._gateway = cluster.gateway
        self._loop: VirtualLoop = cluster.loop
        self._teller = ChangeTeller(store.held, kept)
        self._told_life = 0
        self._about_to_say = False
        store.listeners.append(self._changed)
        self._beat()

    def _beat(self) -> None:
        if self._gateway.process.lives != self._told_life:
            self._say()
        heartbeat_s = self._cluster.setup.cluster.heartbeat_s
        self._loop.call_at(self._loop.now + heartbeat_s, self._beat)

    def _changed(self, change: KvChange) -> None:
        """What changes at the same time is said together."""
        self._teller.note(change)
        if not self._about_to_say:
            self._about_to_say = True
            self._loop.call_at(self._loop.now, self._say)

    def _say(self) -> None:
        self._about_to_say = False
        life = self._gateway.process.lives
        fresh, self._told_life = life != self._told_life, life
        self._send(self._teller.dump() if fresh else self._teller.news())

    def _send(self, message: KvDump | KvEvents) -> None:
        process = self._gateway.process
        at = self._loop.now + self._cluster.network.delay_s()
        life = process.lives

        def deliver() -> None:
            if process.lives == life:
                process.deliver(lambda: self._heard(message))

        self._loop.call_at(at, deliver)

    def _heard(self, message: KvDump | KvEvents) -> None:
        wish = self._gateway.hear_kv(STORE, _LIFE, message, self._gateway.process.now)
        if wish is not None:
            self._send(self._teller.again(wish))
