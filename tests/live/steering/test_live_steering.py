"""What a planner decides happens to a live server, within its limits, and beside its operators."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_plant import LivePlant, Scripted, config, moves, pool, settled, until

from antiphon.core.planner import Add, AddOrder, Flip, Take
from antiphon.errors import AntiphonError
from antiphon.live.supervisor.messages import AddWorker, EndWorker, KeepRole
from antiphon.types import (
    Health,
    Role,
)

PREFILL, DECODE = Role.PREFILL, Role.DECODE
pytestmark = pytest.mark.timeout(60)


# ── moves ────────────────────────────────────────────────────────────────────────────────────────


async def two_that_decode(plant: LivePlant) -> None:
    """A second one was added, and is there."""
    moves(plant, Add(DECODE, 1))
    await plant.step()
    await until(plant, lambda: len(plant.members()) == 3)


async def test_an_added_worker_is_seen_starting_then_cold_then_as_any_other(
    plant: LivePlant,
) -> None:
    moves(plant, Add(DECODE, 1))
    await plant.step()
    assert plant.told == [AddWorker("decode-1", DECODE, 1)]
    await plant.step()
    assert pool(plant, DECODE) == (1, 1, 0, 0)
    await plant.step()
    assert pool(plant, DECODE) == (2, 0, 0, 1)
    await plant.step()
    assert pool(plant, DECODE) == (2, 0, 0, 0)
    assert plant.steering.status().ready_s == 2.0
    assert plant.counts.moves == {("add", DECODE): 1}


async def test_one_that_is_only_asked_for_counts_until_it_is_refused(plant: LivePlant) -> None:
    """The supervisor's answer may take a moment: nobody is asked for twice meanwhile."""
    plant.no_place = "all cores are taken"
    moves(plant, Add(DECODE, 1))
    await plant.step()
    assert [order.worker for order in plant.book.open_orders] == ["decode-1"]
    await plant.step()
    assert plant.book.open_orders == ()
    assert plant.orders(AddWorker) == ["decode-1"]


async def test_there_are_never_more_than_the_budget_whoever_has_started_them(
    plant: LivePlant,
) -> None:
    moves(plant, Add(DECODE, 5), Add(PREFILL, 5))
    await plant.step()
    assert plant.names() == ["decode-0", "decode-1", "decode-2", "prefill-0"]
    assert plant.steering.status().withheld == "the budget of 4 is taken"
    await plant.step()
    assert plant.steering.status().withheld == "", "nobody wants more"


async def test_a_worker_ends_only_when_it_is_empty_and_its_name_is_free_then(
    plant: LivePlant,
) -> None:
    await two_that_decode(plant)
    plant.load("decode-0", running=2)
    plant.load("decode-1", running=1)
    moves(plant, Take(DECODE, 1))
    await plant.step()
    await plant.step()
    assert pool(plant, DECODE) == (1, 0, 1, 0), "the one with less to do drains"
    assert plant.orders(EndWorker) == []
    plant.load("decode-1", running=0)
    await settled()
    assert plant.orders(EndWorker) == ["decode-1"]
    assert plant.names() == ["decode-0", "prefill-0"]
    moves(plant, Add(DECODE, 1))
    await plant.step()
    assert plant.orders(AddWorker) == ["decode-1", "decode-1"]


async def test_a_flip_keeps_the_worker_and_is_counted_where_it_is_going(plant: LivePlant) -> None:
    await two_that_decode(plant)
    plant.load("decode-0", running=3)
    plant.load("decode-1", running=1)
    moves(plant, Flip(DECODE, PREFILL, 1))
    await plant.step()
    await plant.step()
    assert (pool(plant, DECODE)[0], pool(plant, PREFILL)) == (1, (1, 1, 0, 0))
    plant.load("decode-1", running=0)
    await settled()
    await plant.step()
    assert KeepRole("decode-1", PREFILL, pinned=False) in plant.told
    assert pool(plant, PREFILL) == (2, 0, 0, 1)


async def test_the_last_one_that_decodes_is_not_ended(plant: LivePlant) -> None:
    moves(plant, Take(DECODE, 1))
    await plant.step()
    await plant.step()
    assert plant.orders(EndWorker) == []
    assert pool(plant, DECODE) == (1, 0, 0, 0)


async def test_a_drain_that_is_given_up_lets_the_worker_serve_again(plant: LivePlant) -> None:
    await two_that_decode(plant)
    plant.load("decode-1", running=1)
    plant.load("decode-0", running=2)
    moves(plant, Take(DECODE, 1))
    await plant.step()
    await plant.close()
    await plant.step()
    assert pool(plant, DECODE) == (2, 0, 0, 0)


# ── what can't be started ────────────────────────────────────────────────────────────────────────


async def test_a_worker_that_can_t_start_is_not_asked_for_again_at_once(plant: LivePlant) -> None:
    plant.no_place = "all cores are taken"
    for waits_s in (30, 60):
        asked = len(plant.orders(AddWorker))
        moves(plant, Add(DECODE, 1))
        await plant.step()
        assert len(plant.orders(AddWorker)) == asked + 1
        for _ in range(waits_s):
            moves(plant, Add(DECODE, 1), Add(PREFILL, 1))
            await plant.step()
            assert len(plant.orders(AddWorker)) == asked + 1
            said = plant.steering.status().withheld
            assert said.startswith("decode-1 could not be added: all cores are taken; tried again")
        await plant.step()
        assert plant.steering.status().withheld == ""
    assert plant.counts.failed_adds == 2


async def test_one_that_dies_at_its_start_counts_as_that_and_a_good_one_forgives(
    plant: LivePlant,
) -> None:
    moves(plant, Add(DECODE, 2))
    await plant.step()
    plant.die("decode-1")
    assert "exit code 1" in plant.steering.status().withheld
    await until(plant, lambda: len(plant.members()) == 3)
    assert plant.steering.status().withheld == ""
    moves(plant, Add(DECODE, 1))
    await plant.step()
    assert plant.orders(AddWorker) == ["decode-1", "decode-2", "decode-1"]


# ── operators ────────────────────────────────────────────────────────────────────────────────────


async def test_what_an_operator_drains_holds_its_device_and_is_left_alone(
    plant: LivePlant,
) -> None:
    moves(plant, Add(DECODE, 2))
    await plant.step()
    await until(plant, lambda: len(plant.members()) == 4)
    await plant.operations.drain("decode-1", 5)
    moves(plant, Take(DECODE, 3), Add(PREFILL, 1))
    await plant.step()
    await plant.step()
    assert pool(plant, DECODE)[2] == 1, "it is no capacity, and has its device"
    assert "decode-1" in plant.names()
    assert plant.orders(EndWorker) in (["decode-0"], ["decode-2"])
    assert plant.orders(AddWorker) == ["decode-1", "decode-2"], "there was no room for a prefill"


async def test_a_role_that_an_operator_gave_stays(plant: LivePlant) -> None:
    moves(plant, Add(DECODE, 2))
    await plant.step()
    await until(plant, lambda: len(plant.members()) == 4)
    await plant.operations.set_role("decode-1", PREFILL, 5)
    moves(plant, Take(PREFILL, 2), Flip(PREFILL, DECODE, 2))
    await plant.step()
    await plant.step()
    kept = {str(member.info.id): member.info.role for member in plant.members()}
    assert kept["decode-1"] is PREFILL
    assert isinstance(plant.planner, Scripted)
    assert plant.planner.seen[-1].pool(PREFILL).pinned == 1


async def test_an_operator_is_told_that_the_planner_has_the_worker(plant: LivePlant) -> None:
    await two_that_decode(plant)
    plant.load("decode-0", running=2)
    plant.load("decode-1", running=1)
    moves(plant, Take(DECODE, 1))
    await plant.step()
    with pytest.raises(AntiphonError, match="decode-1 is being ended"):
        await plant.operations.drain("decode-1", 5)


ROLES = st.sampled_from([PREFILL, DECODE])
COUNTS = st.integers(1, 3)
NAMES = st.sampled_from([f"{role}-{number}" for role in (PREFILL, DECODE) for number in range(4)])
MOVES = st.lists(
    st.one_of(
        st.builds(Add, ROLES, COUNTS),
        st.builds(Take, ROLES, COUNTS),
        st.sampled_from([Flip(PREFILL, DECODE, 1), Flip(DECODE, PREFILL, 2)]),
    ),
    max_size=3,
)
HAPPENINGS = st.one_of(
    st.tuples(st.just("decide"), MOVES),
    st.tuples(st.just("drain"), NAMES),
    st.tuples(st.just("role"), NAMES, ROLES),
    st.tuples(st.just("load"), NAMES, st.integers(0, 2)),
    st.tuples(st.just("die"), NAMES),
    st.tuples(st.just("place"), st.booleans()),
)


@given(st.lists(HAPPENINGS, max_size=25))
@settings(deadline=None, max_examples=150)
def test_whatever_is_decided_and_done_limits_and_operators_are_kept(happenings: list) -> None:
    """The plant fails where more than the budget is asked for, where one ends that is not drained,
    not empty, or whose role an operator chose; here: what an operator drained is still there."""
    asyncio.run(_live_through(happenings))


async def _live_through(happenings: list) -> None:
    plant = LivePlant(config(), Scripted())
    by_hand: set[str] = set()
    orders: list[asyncio.Task[object]] = []
    for what, *facts in happenings:
        there = {str(one.info.id): one for one in plant.members()}
        match what, facts:
            case "decide", [given]:
                moves(plant, *given)
            case "drain", [name] if name in there and there[name].health is Health.JOINED:
                orders.append(asyncio.create_task(_ordered(plant.operations.drain(name, 5))))
                await settled()
                health = {str(one.info.id): one.health for one in plant.members()}
                if health.get(name) is Health.DRAINING:
                    by_hand.add(name)
            case "role", [name, role] if name in there and name not in by_hand:
                orders.append(
                    asyncio.create_task(_ordered(plant.operations.set_role(name, role, 5)))
                )
            case "load", [name, running] if name in there:
                plant.load(name, running=running)
            case "die", [name] if name in plant._joins_at:
                plant.die(name)
            case "place", [free]:
                plant.no_place = "" if free else "no memory"
            case _:
                pass
        await plant.step()
        assert len(plant.names()) <= plant.counts.budget
        assert by_hand <= set(plant.names())
    for name in plant.names():
        if name in {str(one.info.id) for one in plant.members()}:
            plant.load(name, running=0)
    await asyncio.gather(*orders)
    await settled()
    begun = [one for one in plant.book.open_orders if not isinstance(one, AddOrder)]
    assert begun == [], "what was begun is over"
    await plant.close()


async def _ordered(work) -> None:
    with contextlib.suppress(AntiphonError):
        await work
