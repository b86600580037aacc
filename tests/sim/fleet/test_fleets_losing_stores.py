"""Fleets whose KV stores fail: what that may cost, and what must never be read."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_fleet import Ran, pool, ran, spec
from stored_fleet import BLOCK_BYTES, MIXED, all_answered, cached, mean_ttft_s, plan, readers

from antiphon.core.faults import At, Crash, FaultPlan, LoseBlocks, ProcessFault, StoreFault
from antiphon.core.kv import tenant_of
from antiphon.core.tiers import LOCATE_SHARE
from antiphon.perf import LinkTime
from antiphon.sim.fleet import Fleet, FleetSpec, Reach, TokenSession, UserRules, fleet_stores
from antiphon.sim.fleet.fleet_store import FleetStore
from antiphon.sim.fleet.fleet_store_user import FleetStoreUser
from antiphon.types import BlockKey, Fetch, PutBlock, Role, WorkerId


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
