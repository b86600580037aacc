"""Fleets beside KV stores: what these are worth, and what the router knows of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_fleet import Ran, pool, ran, spec
from stored_fleet import (
    APART,
    LINK,
    MIXED,
    all_answered,
    cached,
    mean_ttft_s,
    plan,
    readers,
)

from antiphon.core.faults import At, Crash, FaultPlan, ProcessFault
from antiphon.core.goodput import ttft_s
from antiphon.perf import LinkTime
from antiphon.sim.fleet import (
    Fleet,
    Reach,
    UserRules,
    keep,
    load_plan,
    parse_scenario,
    simulate,
)
from antiphon.sim.fleet.fleet_store import FleetStore
from antiphon.sim.fleet.fleet_store_user import FleetStoreUser
from antiphon.types import STORE, BlockKey, Role, Tier, WorkerId

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
