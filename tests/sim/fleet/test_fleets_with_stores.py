"""Fleets beside KV stores: what these are worth, what they may lose, what must never be read."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_fleet import Ran, pool, ran, spec

from antiphon.core.faults import At, Crash, FaultPlan, LoseBlocks, ProcessFault, StoreFault
from antiphon.core.goodput import ttft_s
from antiphon.core.kv import tenant_of
from antiphon.core.tiers import LOCATE_SHARE
from antiphon.perf import LinkTime
from antiphon.sim.fleet import (
    Fleet,
    FleetSpec,
    Reach,
    StorePlan,
    TokenSession,
    TokenTurn,
    UserRules,
    fleet_stores,
    keep,
    load_plan,
    parse_scenario,
    simulate,
)
from antiphon.sim.fleet.fleet_store import FleetStore
from antiphon.sim.fleet.fleet_store_user import FleetStoreUser
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.types import STORE, BlockKey, Fetch, PutBlock, Role, Tier, WorkerId

BLOCK_BYTES = 64 * 1000
MIXED = (pool(Role.MIXED, 2, kv_tokens=1536),)
APART = (pool(Role.PREFILL, 2, kv_tokens=2048), pool(Role.DECODE, 1, kv_tokens=2048))
LINK = LinkTime(setup_s=0.001, bytes_per_s=1e9)


def plan(blocks: int, *, reach: Reach = Reach.FLEET, workers_per_host: int = 1, ssd: int = 0):
    return StorePlan(
        host_bytes=blocks * BLOCK_BYTES,
        workers_per_host=workers_per_host,
        reach=reach,
        link=LINK,
        ssd_bytes=ssd * BLOCK_BYTES,
        ssd=LinkTime(setup_s=0.0001, bytes_per_s=5e8),
    )


def document(number: int, tokens: int = 512) -> tuple[int, ...]:
    return answer_tokens(100 + number, 1, tokens)


def readers(
    rounds: int, documents: int, every_s: float = 0.3, tenants: int = 1
) -> Iterator[TokenSession]:
    """Each document is asked about in turn, round after round: more than workers keep."""
    for number in range(rounds * documents):
        which = number % documents
        question = answer_tokens(5000 + number, 2, 20)
        turn = TokenTurn((document(which), question), 10)
        tenant = str(number // documents % tenants)
        yield TokenSession(number * every_s, number, (turn,), tenant=tenant)


def cached(run: Ran) -> int:
    return sum(record.cached_tokens or 0 for record in run.records)


def mean_ttft_s(run: Ran) -> float:
    times = [ttft_s(record) or 0.0 for record in run.records]
    return sum(times) / len(times)


def all_answered(run: Ran) -> bool:
    return all(one.error is None and one.output_tokens == 10 for one in run.records)


# ── what a store is worth ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pools", [MIXED, APART], ids=["mixed", "apart"])
def test_a_pool_has_what_workers_could_not_keep(pools) -> None:
    fleet = spec(*pools)
    without = ran(fleet, readers(4, 8))
    pooled = ran(replace(fleet, store=plan(100)), readers(4, 8))
    assert all_answered(without)
    assert all_answered(pooled)
    assert cached(pooled) > 2 * cached(without)
    assert cached(pooled) >= 3 * 8 * 448
    assert mean_ttft_s(pooled) < 0.8 * mean_ttft_s(without)
    views = pooled.fleet.views().values()
    assert sum(view.fetched_tokens_total for view in views) > cached(without)


def test_a_fetch_takes_the_links_time() -> None:
    """A lone prompt whose beginning is in the pool: a message, the fetch, the rest, a message."""
    fleet = replace(spec(pool(Role.MIXED, 1, kv_tokens=1280)), store=plan(100))
    records = ran(fleet, readers(2, 4, every_s=2.0)).records
    (first, again) = (records[0], records[4])
    assert (first.cached_tokens, again.cached_tokens) == (0, 512)
    computed_s = 0.01 + 1e-4 + 20 * 1e-4 + 532 * 1e-7
    fetched_s = LINK.seconds(512 * 1000)
    assert ttft_s(again) == pytest.approx(computed_s + fetched_s + 2 * 0.0005, abs=2e-4)


def test_a_link_so_slow_that_computing_is_sooner_is_left_alone() -> None:
    slow = replace(plan(100), link=LinkTime(setup_s=0.5, bytes_per_s=1e6))
    fleet = spec(*MIXED)
    run = ran(replace(fleet, store=slow), readers(3, 8))
    assert sum(view.fetched_tokens_total for view in run.fleet.views().values()) == 0
    assert [one.token_at_s for one in run.records] == [
        one.token_at_s for one in ran(fleet, readers(3, 8)).records
    ]


def test_what_only_a_host_reaches_is_of_use_there() -> None:
    """With little memory of its own each worker goes by what lies beside it."""
    fleet = spec(*MIXED)
    without = ran(fleet, readers(4, 8))
    beside = ran(replace(fleet, store=plan(100, reach=Reach.HOST)), readers(4, 8))
    pooled = ran(replace(fleet, store=plan(100)), readers(4, 8))
    assert all_answered(beside)
    assert cached(without) < cached(beside) <= cached(pooled)
    stores = beside.fleet.stores
    assert stores is not None
    assert len(stores.by_host()) == 2
    one_host = plan(100, reach=Reach.HOST, workers_per_host=2)
    shared = ran(replace(fleet, store=one_host), readers(4, 8))
    assert shared.fleet.stores is not None
    assert len(shared.fleet.stores.by_host()) == 1
    assert cached(shared) >= cached(beside)


def test_a_place_waits_for_its_heir_and_else_is_free() -> None:
    fleet = Fleet(
        replace(spec(*MIXED), store=plan(9, reach=Reach.HOST)),
        iter(()),
        UserRules(),
        lambda _: None,
    )

    def store(name: str) -> FleetStore:
        life = fleet.cluster.workers[WorkerId(name)].life
        assert life is not None
        assert isinstance(life.store, FleetStoreUser)
        return life.store._store

    first, second = store("mixed-0"), store("mixed-1")
    fleet.end_worker(WorkerId("mixed-0"), WorkerId("heir"))
    for name in ("other", "heir"):
        fleet.start_worker(WorkerId(name), MIXED[0])
    assert store("heir") is first
    assert store("other") not in (first, second)
    fleet.end_worker(WorkerId("mixed-1"))
    fleet.start_worker(WorkerId("next"), MIXED[0])
    assert store("next") is second
    assert fleet.stores is not None
    assert len(fleet.stores.by_host()) == 3


def test_an_ssd_has_what_memory_could_not_keep() -> None:
    fleet = spec(*MIXED)
    small = ran(replace(fleet, store=plan(10)), readers(4, 8))
    behind = ran(replace(fleet, store=plan(10, ssd=100)), readers(4, 8))
    assert all_answered(behind)
    assert cached(behind) > 1.5 * cached(small)


# ── the index, and the store's own account ───────────────────────────────────────────────────


def held_by(run: Ran, name: str, tier: Tier) -> frozenset[BlockKey]:
    return run.fleet.cluster.router.kv_index.held_by(WorkerId(name), tier)


GATEWAY_DIES = FaultPlan(1, (ProcessFault(At(6.0), "gateway", Crash(0.5)),))
WORKER_DIES = FaultPlan(1, (ProcessFault(At(6.0), "mixed-1", Crash(1.0)),))


@pytest.mark.parametrize("faults", [FaultPlan(0), GATEWAY_DIES, WORKER_DIES])
@pytest.mark.parametrize("reach", list(Reach))
def test_i25_the_router_knows_what_stores_have(faults: FaultPlan, reach: Reach) -> None:
    fleet = replace(spec(*MIXED, faults=faults), store=plan(20, reach=reach, ssd=30))
    run = ran(fleet, readers(4, 8))
    run.fleet.cluster.run_until(run.fleet.now + 5.0)
    stores = run.fleet.stores
    assert stores is not None
    for host, store in stores.by_host().items():
        assert store.stats().leases == 0
        if reach is Reach.POOL and host:
            continue  # it is the first host's that speaks for the pool
        name = f"mixed-{host}" if reach is Reach.HOST else STORE
        for tier in (Tier.HOST, Tier.DISK, *([Tier.PEER] if reach is Reach.POOL else [])):
            there = {key for key, where in store.held() if where is tier}
            assert there
            assert held_by(run, name, tier) == there
    if reach is Reach.POOL:
        first, second = stores.by_host().values()
        own = {key for key, where in second.held() if where is not Tier.PEER}
        assert {key for key, where in first.held() if where is Tier.PEER} == own


def test_what_a_pool_brings_from_another_host_takes_the_networks_time() -> None:
    """Two hosts; the same prompt comes to one, and then, as that is busy, to the other."""
    fleet = spec(*MIXED)
    one, apart = plan(100), plan(100, reach=Reach.POOL)
    pooled = ran(replace(fleet, store=apart), readers(4, 8))
    ideal = ran(replace(fleet, store=one), readers(4, 8))
    beside = ran(replace(fleet, store=plan(100, reach=Reach.HOST)), readers(4, 8))
    assert all_answered(pooled)
    assert cached(beside) <= cached(pooled) <= cached(ideal)
    assert cached(pooled) >= 0.9 * cached(ideal)


def test_a_pools_stores_hold_each_block_once_while_it_is_cold() -> None:
    run = ran(replace(spec(*MIXED), store=plan(200, reach=Reach.POOL)), readers(1, 8))
    run.fleet.cluster.run_until(run.fleet.now + 5.0)
    assert run.fleet.stores is not None
    for store in run.fleet.stores.by_host().values():
        beyond = store._beyond
        assert beyond is not None
        own = [key for key, where in store.held() if where is Tier.HOST]
        elsewhere = set(beyond.held())
        assert own
        assert all(beyond.is_home(key) or key in elsewhere for key in own)


def test_i7_the_same_seed_gives_the_same_records() -> None:
    fleet = replace(spec(*APART), store=plan(20, ssd=30))
    assert ran(fleet, readers(3, 8)).records == ran(fleet, readers(3, 8)).records


SCENARIO = (
    'model = "llama-3-8b"\nduration = "20s"\nwarmup = "0s"\nseed = 3\n'
    '[load]\nworkload = "multi-turn"\nrate = 2\nslo = ["ttft=1s,tpot=50ms"]\n'
    '[[pool]]\nworkers = 2\ndevice = "h100"\nkv-tokens = 8192\n'
)


def folder_of(text: str, folder: Path) -> dict[str, bytes]:
    scenario = parse_scenario(text, Path("it.toml"))
    keep(simulate(scenario, load_plan(scenario, scenario.seed)), folder)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_a_pool_of_no_size_is_no_pool_byte_for_byte(tmp_path: Path) -> None:
    none = folder_of(SCENARIO, tmp_path / "none")
    empty = folder_of(SCENARIO + "[store]\ngigabytes = 0\n", tmp_path / "empty")
    some = folder_of(SCENARIO + "[store]\ngigabytes = 64\n", tmp_path / "some")
    again = folder_of(SCENARIO + "[store]\ngigabytes = 64\n", tmp_path / "again")
    assert none == empty
    assert some == again
    assert some != none


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reach", list(Reach))
def test_i27_a_store_that_is_lost_costs_time_only(reach: Reach) -> None:
    fleet = replace(spec(*MIXED), store=plan(100, reach=reach))
    undisturbed = ran(fleet, readers(5, 8, every_s=0.1))
    lost = FaultPlan(1, tuple(StoreFault(At(at), LoseBlocks()) for at in (2.5, 3.0, 3.5)))
    run = ran(replace(fleet, faults=lost), readers(5, 8, every_s=0.1))
    assert [one.fault for one in run.fleet.cluster.faults.injected] == list(lost.faults)
    assert all_answered(run)
    assert cached(run) < cached(undisturbed)
    assert mean_ttft_s(run) > mean_ttft_s(undisturbed)


def test_what_is_copied_while_the_store_is_lost_is_put_again() -> None:
    """All of a lone prompt: eight blocks that take half a second between them."""
    slow = replace(plan(100), link=LinkTime(setup_s=0.001, bytes_per_s=1e6))
    one = replace(spec(pool(Role.MIXED, 1)), store=slow)
    fleet = Fleet(one, readers(1, 1), UserRules(), lambda _: None)
    assert fleet.stores is not None
    (store,) = fleet.stores.by_host().values()
    before: list[int] = []

    def lose() -> None:
        before.append(len(store))
        store.lose_all()

    fleet.at(0.4, lose)
    fleet.run()
    fleet.cluster.run_until(fleet.now + 5.0)
    assert before == [0], "the copy is under way"
    assert len(store) == 512 // 64
    user = fleet.cluster.workers[WorkerId("mixed-0")].life
    assert user is not None
    assert isinstance(user.store, FleetStoreUser)
    assert not user.store._queued
    assert not user.store._unput


class Watched(FleetStore):
    """Notes what was put well, for whom, in which life of the store."""

    tenants: dict[BlockKey, bytes]
    good: dict[BlockKey, int]

    def begin_put(self, block: PutBlock, tenant: bytes, writer: str) -> bool:
        self._know()
        self.tenants[block.key] = tenant
        return super().begin_put(block, tenant, writer)

    def end_put(self, key: BlockKey, good: bool) -> None:
        self._know()
        if good:
            self.good[key] = self.lives
        super().end_put(key, good)

    def _know(self) -> None:
        """What comes from another store of a pool was put there; all are lost together."""
        known = getattr(self._beyond, "_pool", self)
        if not hasattr(known, "tenants"):
            known.tenants, known.good = {}, {}
        self.tenants, self.good = known.tenants, known.good


def check(store: FleetStore, fetch: Fetch, copied: tuple[bool, ...]) -> None:
    """What is fetched, against what was put."""
    assert isinstance(store, Watched)
    store._know()
    for key, good in zip(fetch.keys, copied, strict=True):
        if good:
            assert store.good.get(key) == store.lives, "a block that was lost is read"
            assert store.tenants[key] == fetch.tenant, "another tenant's block is read"


class Watching(FleetStoreUser):
    """Checks each fetch."""

    def copy(self, fetch: Fetch) -> tuple[bool, ...]:
        copied = super().copy(fetch)
        check(self._store, fetch, copied)
        return copied


class TakesLost(Watching):
    """Control: whatever was found has come."""

    def copy(self, fetch: Fetch) -> tuple[bool, ...]:
        store, lives = self._store, self._store.lives
        store.lives = self._coming[fetch.request, fetch.attempt].found.life
        copied = FleetStoreUser.copy(self, fetch)
        store.lives = lives
        check(store, fetch, copied)
        return copied


def watched(fleet: FleetSpec, sessions: Iterator[TokenSession], user: type[Watching]) -> Ran:
    with (
        mock.patch.object(fleet_stores, "FleetStore", Watched),
        mock.patch.object(fleet_stores, "FleetStoreUser", user),
    ):
        return ran(fleet, sessions)


TIMES = st.floats(0.5, 6.0)
LOSSES = st.lists(st.builds(lambda at: StoreFault(At(at), LoseBlocks()), TIMES), max_size=3)
DEATHS = st.lists(
    st.builds(
        lambda at, who: ProcessFault(At(at), f"mixed-{who}", Crash(0.5)), TIMES, st.integers(0, 1)
    ),
    max_size=2,
)
"""Two: a third one may end a request for good."""


@settings(deadline=None, max_examples=25)
@given(
    blocks=st.integers(1, 60),
    ssd=st.sampled_from([0, 0, 40]),
    reach=st.sampled_from(Reach),
    losses=LOSSES,
    deaths=DEATHS,
    every_s=st.sampled_from([0.03, 0.1]),
)
def test_nothing_is_read_that_was_lost_or_is_another_tenants(
    blocks: int,
    ssd: int,
    reach: Reach,
    losses: list[StoreFault],
    deaths: list[ProcessFault],
    every_s: float,
) -> None:
    fleet = replace(
        spec(*MIXED, faults=FaultPlan(1, (*losses, *deaths))),
        store=plan(blocks, reach=reach, ssd=ssd),
    )
    run = watched(fleet, readers(6, 6, every_s=every_s, tenants=2), Watching)
    assert all_answered(run)
    run.fleet.cluster.run_until(run.fleet.now + 10.0)
    assert run.fleet.stores is not None
    for store in run.fleet.stores.by_host().values():
        stats = store.stats()
        assert (stats.leases, stats.used_bytes) == (0, stats.blocks * BLOCK_BYTES)
        assert stats.blocks <= store.size.host_blocks


def test_a_store_may_look_as_long_as_a_live_one() -> None:
    fleet, waits = replace(spec(*MIXED), store=plan(100)), set[float]()
    locate = FleetStore.locate

    def noted(*args: Any, wait_s: float, **facts: Any) -> None:
        waits.add(wait_s)
        locate(*args, wait_s=wait_s, **facts)

    with mock.patch.object(FleetStore, "locate", noted):
        ran(fleet, readers(2, 8))
    assert waits == {LOCATE_SHARE * fleet.config.store.fetch_timeout_s}


def test_control_a_store_that_is_lost_in_mid_copy_is_found() -> None:
    slow = replace(plan(100), link=LinkTime(setup_s=0.0005, bytes_per_s=3e7))
    faults = FaultPlan(1, tuple(StoreFault(At(2.0 + 0.37 * n), LoseBlocks()) for n in range(25)))
    fleet = replace(spec(*MIXED, faults=faults), store=slow)
    sessions = list(readers(12, 8, every_s=0.08))
    watched(fleet, iter(sessions), Watching)
    with pytest.raises(AssertionError, match="was lost"):
        watched(fleet, iter(sessions), TakesLost)


def test_tenants_share_nothing() -> None:
    """The same documents, asked by two tenants in turn: each has its own blocks."""
    fleet = replace(spec(*MIXED), store=plan(200))
    run = watched(fleet, readers(2, 8, tenants=2), Watching)
    assert all_answered(run)
    assert cached(run) == 0
    assert tenant_of(b"0") != tenant_of(b"1")
