"""What a planner decides happens to a virtual fleet, and no call suffers from it."""

from dataclasses import replace

import pytest
from steering_kit import ANSWER, DECODE, PREFILL, RULES, TIMES, Run, Scripted, pool, told

from antiphon.core.faults import At, Crash, FaultPlan, ProcessFault
from antiphon.core.planner import Add, Flip, Move, Planner, Take
from antiphon.errors import UsageError
from antiphon.sim.fleet import Reach, Steering, StorePlan
from antiphon.sim.fleet.fleet_store import FleetStore
from antiphon.sim.fleet.fleet_store_user import FleetStoreUser
from antiphon.types import Role, WorkerId


def scripted(counts: tuple[int, int], moves: dict[int, list[Move]], **more: object) -> Run:
    facts = {"per_s": 6.0, "seconds": 40.0} | more
    return Run(counts, planner=Scripted(RULES, moves), **facts)  # pyright: ignore


def check_calls(run: Run) -> None:
    """Every call ended once, whole, and nothing of it is left anywhere."""
    assert sorted(one.number for one in run.records) == list(range(run.fleet.users.begun))
    assert [one for one in run.records if one.error is not None] == []
    assert {one.output_tokens for one in run.records} == {ANSWER}
    cluster = run.fleet.cluster
    cluster.run_until(cluster.loop.now + 30.0)
    assert cluster.unrest() == []


def test_a_worker_that_is_added_serves_when_it_is_ready_and_not_before() -> None:
    run = scripted((1, 1), {2: [Add(PREFILL, 2)]})
    there: list[set[WorkerId]] = []
    for at in (9.9, 14.9, 15.5):
        run.fleet.at(at, lambda: there.append(set(run.fleet.views())))
    run.run()
    assert [len(workers) for workers in there] == [2, 2, 4]
    seen = run.planner.seen  # pyright: ignore
    sizes = [one.pool(PREFILL) for one in seen]
    assert [(one.ready, one.starting, one.cold) for one in sizes[1:5]] == [
        (1, 0, 0),
        (1, 2, 0) if sizes[2].starting else (3, 0, 2),
        (3, 0, 2) if sizes[3].cold else (3, 0, 0),
        (3, 0, 0),
    ]
    assert sum(one.cold for one in sizes) == 2, "cold for one interval"
    check_calls(run)


def test_a_virtual_fleet_has_no_more_workers_than_the_budget_whoever_has_started_them() -> None:
    """The same rule as on a live server, from the same book."""
    run = scripted((1, 2), {2: [Add(PREFILL, 9)], 6: [Take(PREFILL, 3), Add(DECODE, 9)]})
    run.fleet.at(1.0, lambda: run.steering.add_by_hand(DECODE))
    run.run()
    paid = [sum(sizes.values()) for _, sizes in run.steering.sizes]
    assert max(paid) == RULES.budget
    assert paid[1] == RULES.budget
    check_calls(run)


def test_the_last_worker_of_a_role_stays() -> None:
    run = scripted((1, 1), {2: [Take(PREFILL, 1), Take(DECODE, 5), Flip(DECODE, PREFILL, 1)]}).run()
    check_calls(run)
    assert sorted(one.role for one in run.fleet.pools.values()) == sorted([PREFILL, DECODE])


def test_workers_are_drained_under_load_and_nothing_is_lost() -> None:
    run = scripted((3, 3), {2: [Take(PREFILL, 2), Take(DECODE, 2)]}, per_s=8.0).run()
    check_calls(run)
    assert len(run.fleet.pools) == 2
    assert run.planner.seen[-1].pool(DECODE).ready == 1  # pyright: ignore


def test_workers_are_flipped_under_load_and_nothing_is_lost() -> None:
    moves: dict[int, list[Move]] = {
        2: [Flip(PREFILL, DECODE, 1)],
        4: [Flip(DECODE, PREFILL, 2)],
        6: [Flip(PREFILL, DECODE, 1)],
    }
    run = scripted((3, 2), moves, per_s=8.0).run()
    check_calls(run)
    roles = sorted(one.role for one in run.fleet.pools.values())
    assert roles == sorted([PREFILL] * 3 + [DECODE] * 2)
    assert len(set(run.fleet.pools)) == 5


def test_a_drain_that_takes_too_long_moves_what_is_left() -> None:
    run = scripted((2, 2), {2: [Take(DECODE, 1)]}, per_s=8.0)
    run.steering._drain_s = 0.05
    run.run()
    check_calls(run)


def test_devices_are_paid_from_the_asking_until_the_drain_is_over() -> None:
    run = scripted((1, 2), {2: [Add(PREFILL, 1)], 4: [Take(DECODE, 1)]})
    gone: list[float] = []
    fleet = run.fleet
    drained = fleet.on_drained
    fleet.on_drained = lambda what: (gone.append(fleet.users.now), drained(what))
    run.run()
    assert len(gone) == 1
    assert 20.0 <= gone[0] < 25.0
    assert run.steering.device_s(40.0) == pytest.approx(2 * 40.0 + 30.0 + gone[0])


def test_what_is_seen_adds_up_to_what_was_sent() -> None:
    run = scripted((2, 2), {}).run()
    seen = run.planner.seen  # pyright: ignore
    assert sum(one.requests for one in seen) == len(run.records)
    assert {one.input_tokens for one in seen if one.requests} == {200.0}
    assert {one.output_tokens for one in seen if one.output_tokens} == {float(ANSWER)}
    prompts_s = sum(one.pool(PREFILL).busy_s for one in seen)
    assert prompts_s == pytest.approx(len(run.records) * TIMES.prefill_s(200), rel=0.2)
    middle = seen[4].pool(DECODE)
    by_little = 6.0 * (ANSWER - 1) * TIMES.decode_step_s(2, 0)
    assert middle.running == pytest.approx(by_little, rel=0.6)


def crash(worker: str, at_s: float, away_s: float) -> FaultPlan:
    """`at_s` after users begin."""
    return FaultPlan(0, (ProcessFault(At(2.0 + at_s), worker, Crash(away_s)),))


def test_a_worker_that_crashed_and_is_back_is_cold_and_its_counts_are_its_new_lifes() -> None:
    calm = scripted((1, 2), {}).run().planner.seen  # pyright: ignore
    run = scripted((1, 2), {}, faults=crash("decode-0", 22.0, 0.1)).run()
    seen = run.planner.seen  # pyright: ignore
    assert [one.at for one in seen if one.pool(DECODE).cold] == [25.0]
    assert [one.pool(DECODE).ready for one in seen[:-1]] == [2] * (len(seen) - 1)
    hit, usual = seen[4].pool(DECODE), calm[4].pool(DECODE)
    assert 0 < hit.busy_s < 0.8 * usual.busy_s, "the other's alone"
    assert 0 < hit.steps < 0.8 * usual.steps
    check_calls(run)


def test_also_if_its_new_life_has_counted_more_by_then_than_its_old_one_before() -> None:
    """Nothing falls: it is cold because it began then."""
    faults = crash("decode-0", 5.1, 0.1)
    run = scripted((1, 2), {}, per_s=1.0, burst=(6.0, 100), faults=faults)
    id, counted = WorkerId("decode-0"), list[int]()
    for at in (5.0, 10.0):
        run.fleet.at(at, lambda: counted.append(run.fleet.views()[id].steps_total))
    run.run()
    assert 0 < counted[0] < counted[1]
    assert [one.at for one in run.planner.seen if one.pool(DECODE).cold] == [10.0]  # pyright: ignore


def test_a_worker_that_crashed_while_it_drained_is_gone_for_good() -> None:
    run = scripted((1, 2), {2: [Take(DECODE, 1)]})
    taken: list[str] = []

    def crashed() -> None:
        (name,) = run.steering._draining
        taken.append(name)

    run.fleet.at(10.01, crashed)
    run.run()
    faults = crash(taken[0], 10.02, 8.0)
    run = scripted((1, 2), {2: [Take(DECODE, 1)]}, faults=faults).run()
    assert len(run.fleet.cluster.faults.injected) == 1
    check_calls(run)
    life = run.fleet.cluster.gateway.life
    assert life is not None
    assert set(life.membership.workers()) == set(run.fleet.pools)


@pytest.mark.parametrize("move", [Take(DECODE, 1), Flip(DECODE, PREFILL, 1)])
@pytest.mark.parametrize(
    ("at_s", "away_s", "under_way"), [(10.02, 1.0, 1), (9.5, 1.0, 1), (9.5, 0.499, 0)]
)
def test_orders_are_settled_when_the_gateway_dies_in_the_midst_of_them(
    move: Move, at_s: float, away_s: float, under_way: int
) -> None:
    """While the worker drains; before it could be told; when it is back, and no worker yet."""
    faults = FaultPlan(0, (ProcessFault(At(2.0 + at_s), "gateway", Crash(away_s)),))
    run = scripted((1, 2), {2: [move]}, faults=faults)
    orders: list[int] = []
    run.fleet.at(10.01, lambda: orders.append(len(run.steering._book.open_orders)))
    run.run()
    assert orders == [under_way]
    assert len(run.fleet.cluster.faults.injected) == 1
    assert run.steering._book.open_orders == ()
    roles = sorted(one.role for one in run.fleet.pools.values())
    assert roles == sorted([PREFILL, DECODE] + [PREFILL] * isinstance(move, Flip))
    assert not any(one.draining for one in run.steering._workers(run.fleet.views()).values())


def store_of(run: Run, name: WorkerId) -> FleetStore:
    """What lies beside that worker."""
    life = run.fleet.cluster.workers[name].life
    assert life is not None
    assert isinstance(life.store, FleetStoreUser)
    return life.store._store


def test_who_is_flipped_stays_on_its_host_and_who_is_added_takes_a_free_place() -> None:
    """Two hosts with two workers each, whatever becomes of these; the fifth worker has a third."""
    to, fro = [Flip(DECODE, PREFILL, 1)], [Flip(PREFILL, DECODE, 1)]
    moves = {1: to, 3: fro, 5: to, 7: [Take(PREFILL, 1)], 9: [Add(DECODE, 1)], 11: [Add(DECODE, 1)]}
    store = StorePlan(host_bytes=10**6, workers_per_host=2, reach=Reach.HOST)
    run = scripted((2, 2), moves, per_s=4.0, seconds=75.0, store=store)
    hosts: list[list[int]] = []

    def look() -> None:
        assert run.fleet.stores is not None
        known = list(run.fleet.stores.by_host().values())
        hosts.append(sorted(known.index(store_of(run, name)) for name in run.fleet.pools))

    for at in (4.0, 14.0, 24.0, 34.0, 54.0, 64.0):
        run.fleet.at(at, look)
    run.run()
    check_calls(run)
    assert hosts == [[0, 0, 1, 1]] * 5 + [[0, 0, 1, 1, 2]]


def test_all_workers_of_a_pool_of_memory_may_be_others_in_the_end() -> None:
    moves: dict[int, list[Move]] = {1: [Add(DECODE, 1)], 3: [Flip(DECODE, PREFILL, 1)]}
    moves |= {5: [Take(PREFILL, 1)]}
    run = scripted((1, 1), moves, per_s=4.0, store=StorePlan(host_bytes=10**6)).run()
    assert run.fleet.stores is not None
    assert len(run.fleet.stores.by_host()) == 1
    assert len(run.fleet.pools) == 2
    check_calls(run)


def test_advice_alone_moves_nothing() -> None:
    run = Run((1, 1), 12.0, 20.0, Planner(RULES, told()), advisory=True).run()
    assert any(one.moves for one in run.steering.decisions)
    assert all(one.reason for one in run.steering.decisions)
    assert len(run.fleet.pools) == 2
    assert run.steering.device_s(20.0) == 40.0


def test_equal_runs_are_equal() -> None:
    first, second = (Run((1, 1), 12.0, 20.0, Planner(RULES, told())).run() for _ in range(2))
    assert first.steering.decisions == second.steering.decisions
    assert first.records == second.records
    assert len(first.fleet.pools) > 2


def test_a_pool_whose_role_the_planner_leaves_out_is_refused() -> None:
    run = scripted((1, 1), {})
    rules = replace(RULES, roles=(PREFILL,))
    templates = {role: pool(role, 1) for role in (Role.PREFILL, Role.DECODE)}
    with pytest.raises(UsageError, match="decode"):
        Steering(run.fleet, rules, templates, run.planner)
