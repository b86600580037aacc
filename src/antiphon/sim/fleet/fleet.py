"""A fleet of devices in virtual time: the live decisions over timed engines, and who calls it.

sessions ─► Users ─► VirtualCluster: gateway, book, router ─► workers: scheduler, TimedEngine
              └── records: what each call saw                   └── KV over Links
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from antiphon.core.costs import PhaseTime, TransferTime
from antiphon.core.faults import FaultPlan
from antiphon.core.router import KeySpace
from antiphon.core.scheduler import STANDARD_PARTS
from antiphon.types import (
    BlockKey,
    CallRecord,
    Config,
    Drained,
    ModelInfo,
    Request,
    Role,
    SchedulerConfig,
    Seconds,
    WorkerId,
    WorkerView,
)

from ..cluster_setup import ClusterSetup, WorkerSpec
from ..network import LinkTimes
from ..shadow_kv import ShadowKv
from ..virtual_cluster import Expected, VirtualCluster
from ..worker_parts import WorkerParts
from .blind_kv import BlindKv, BlindMemory
from .bulk_taker import BulkTaker, Links
from .fleet_stores import FleetStores, StoreSetup
from .large_pages import LargePages
from .rare_collections import rare_collections
from .store_plan import StorePlan
from .timed_engine import DeviceTime, TimedEngine
from .token_sessions import VOCAB_SIZE, TokenSession, id_range
from .users import UserRules, Users

_SLICE_S: Seconds = 5.0
_MOST_ACTIONS = 10**12
_KEPT_CHANGES = 512
"""Of its blocks, for each worker: some thousands of workers keep them all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal workers. `kv_tokens`: how many tokens' KV one worker has memory for.

    `phases`: what a planner expects of one; often the same object as `step_time`.
    """

    name: str
    role: Role
    workers: int
    step_time: DeviceTime
    phases: PhaseTime
    kv_tokens: int
    devices: int = 1
    """Devices of one worker."""
    scheduler: SchedulerConfig | None = None
    """None: that of the fleet's configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """Everything that a run depends on, but for what users do.

    `transfer`: the time of a hand-over that is not hidden behind the prefill. `repeats`: most
    decode steps that are one event; 1 asks for each.
    """

    pools: tuple[Pool, ...]
    config: Config
    expected: Expected
    transfer: TransferTime
    kv_bytes_per_token: int
    max_model_len: int
    faults: FaultPlan = field(default_factory=lambda: FaultPlan(0))
    times: LinkTimes = field(default_factory=lambda: LinkTimes(least_s=0.0005, most_s=0.0005))
    repeats: int = 64
    store: StorePlan | None = None
    """None, or one without room for a block: there is none."""

    @property
    def devices(self) -> int:
        """Devices of all pools."""
        return sum(pool.workers * pool.devices for pool in self.pools)


class Fleet:
    """One run. Equal specs, sessions and rules give equal records."""

    def __init__(
        self,
        spec: FleetSpec,
        sessions: Iterator[TokenSession],
        rules: UserRules,
        observe: Callable[[CallRecord], None],
    ) -> None:
        self.spec = spec
        self.users = Users(sessions, rules, observe)
        self.pools = {
            WorkerId(f"{pool.name}-{number}"): pool
            for pool in spec.pools
            for number in range(pool.workers)
        }
        setup = self._setup()
        self._links = Links(spec.transfer, setup.kv.page_tokens * spec.kv_bytes_per_token)
        self.stores = self._stores(self._links)
        """None: the fleet has no store."""
        parts = self.worker_parts()
        expected = spec.expected
        if self.stores is not None and spec.store is not None:
            stores = self.stores
            parts = replace(parts, beside=lambda life, _store, _side: stores.user(life))
            expected = replace(expected, fetch=expected.fetch or spec.store.fetch_time)
        self.cluster = VirtualCluster(
            setup, parts=parts, expected=expected, log=self.users, stores=self.stores
        )
        if self.stores is not None:
            self.stores.attach(self.cluster)

        self.users.on_drained = self._hear_drained
        self.on_drained: Callable[[Drained], None] = lambda _: None
        """Told when a worker that was to be emptied is empty."""

    def worker_parts(self) -> WorkerParts:
        """What each worker is put together from, once."""
        return WorkerParts(
            scheduler=replace(
                STANDARD_PARTS,
                known_names=self.known_names,
                id_range=id_range,
                memory=BlindMemory,
            ),
            engine=self._engine,
            memory=BlindKv,
            taker=lambda life: BulkTaker(life, self._links),
        )

    def known_names(
        self, request: Request, model: ModelInfo, block_tokens: int
    ) -> Sequence[BlockKey]:
        """The keys of a prompt's first blocks, as far as the gateway has computed them already.

        It is in the same process here; a worker would compute the same.
        """
        space = KeySpace(model.identity, model.numerics, block_tokens)
        return self.cluster.router.names_of(request.id, space)

    @property
    def now(self) -> Seconds:
        """Virtual time."""
        return self.cluster.loop.now

    def at(self, at: Seconds, action: Callable[[], None]) -> None:
        """Do something so long after users begin."""
        self.cluster.loop.call_at(self.join_s + at, action)

    # ── a fleet that changes ─────────────────────────────────────────────────────────────────

    def start_worker(self, id: WorkerId, pool: Pool) -> None:
        """One more worker of that pool starts now."""
        self.pools[id] = pool
        self.cluster.add_worker(self._worker_spec(id, pool))

    def drain(self, id: WorkerId, timeout_s: Seconds) -> None:
        """It gets nothing new; what is left after `timeout_s` is moved."""
        self.cluster.gateway.drain(id, timeout_s)

    def end_worker(self, id: WorkerId, successor: WorkerId | None = None) -> None:
        """It is gone, with whatever it has. `successor`: who will start on its device."""
        del self.pools[id]
        self.cluster.end_worker(id)
        if self.stores is not None:
            self.stores.ended(id, successor)

    def _hear_drained(self, what: Drained) -> None:
        # Not in the midst of the gateway's own command.
        self.cluster.loop.call_at(self.now, lambda: self.on_drained(what))

    # ── running ──────────────────────────────────────────────────────────────────────────────

    def run(
        self,
        *,
        drain_s: Seconds = 600.0,
        on_progress: Callable[[Seconds], None] = lambda _: None,
    ) -> None:
        """Until all calls are over, or `drain_s` after the last session began: whoever still waits
        then gives up. `on_progress` hears the users' time, and may raise to end the run.
        """
        pages = LargePages()
        with rare_collections():
            self.cluster.run_until(self.join_s, max_actions=_MOST_ACTIONS)
            self.users.attach(self.cluster.loop, self.cluster.gateway)
            while not self._over(drain_s):
                pages.ask()
                self.cluster.run_until(self.now + _SLICE_S, max_actions=_MOST_ACTIONS)
                on_progress(self.users.now)
            self.users.give_up()

    def views(self) -> dict[WorkerId, WorkerView]:
        """The counts of each living worker."""
        return self.cluster.views()

    @property
    def join_s(self) -> Seconds:
        """Virtual time at which users begin: every worker has joined and reported by then."""
        return 4 * self.spec.config.cluster.heartbeat_s

    def _over(self, drain_s: Seconds) -> bool:
        users = self.users
        if not users.all_begun:
            return False
        return not users.open_calls or users.now > users.last_at + drain_s

    def _stores(self, links: Links) -> FleetStores | None:
        spec, config = self.spec, self.spec.config
        block_bytes = config.kv.block_tokens * spec.kv_bytes_per_token
        if spec.store is None or not spec.store.has_room(block_bytes):
            return None
        setup = StoreSetup(
            plan=spec.store,
            config=config.store,
            workers=len(self.pools),
            block_bytes=block_bytes,
            kept_changes=_KEPT_CHANGES,
        )
        return FleetStores(setup, links)

    def _engine(self, spec: WorkerSpec, _setup: ClusterSetup, _memory: ShadowKv) -> TimedEngine:
        return TimedEngine(self.pools[spec.id].step_time, self.users.answers)

    def _worker_spec(self, id: WorkerId, pool: Pool) -> WorkerSpec:
        return WorkerSpec(
            id=id,
            role=pool.role,
            pages=pool.kv_tokens // self.spec.config.kv.page_tokens,
            scheduler=pool.scheduler,
        )

    def _setup(self) -> ClusterSetup:
        spec, config = self.spec, self.spec.config
        return ClusterSetup(
            workers=tuple(self._worker_spec(id, pool) for id, pool in self.pools.items()),
            stimuli=(),
            faults=spec.faults,
            times=spec.times,
            cluster=config.cluster,
            router=config.router,
            scheduler=config.scheduler,
            kv=config.kv,
            max_model_len=spec.max_model_len,
            vocab_size=VOCAB_SIZE,
            kv_bytes_per_token=spec.kv_bytes_per_token,
            kept_changes=_KEPT_CHANGES,
            most_repeats=spec.repeats,
        )
