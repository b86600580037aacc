"""Of many workers a few are looked at: the right ones, and as few as promised."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_holder import Holder
from router_kit import PAGES, LinearTimes, health, info, offer_of, report, request, router, view

from antiphon.core.kv import BlockKeys
from antiphon.core.router import Option, Parts, Router, RouterLimits, WorkerBelief
from antiphon.core.router.held_blocks import HeldBlocks
from antiphon.core.router.load_order import LoadOrder, Rank
from antiphon.core.router.scorers import MostHeadroom
from antiphon.core.router.short_list import NAMED, ShortList
from antiphon.types import BlockKey, Health, Hold, Role, Route, Tier, WorkerId

NAMES = [WorkerId(f"w{number}") for number in range(8)]
MANY = 200
MOST_SEEN = 8 + NAMED
"""Four least loaded, four drawn, and the named ones, of a fleet of one group."""


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.integers(0, 2), st.booleans()),
        max_size=60,
    ),
    st.integers(0, 10),
)
def test_the_order_of_loads_is_a_sorted_list(
    changes: list[tuple[WorkerId, int, int, bool]], most: int
) -> None:
    made, ranks = LoadOrder(), dict[WorkerId, Rank]()
    for worker, busy, requests, goes in changes:
        if goes:
            made.remove(worker)
            ranks.pop(worker, None)
        else:
            ranks[worker] = Rank(float(busy), requests, 0, worker)
            made.put(ranks[worker])
        expected = [rank.worker for rank in sorted(ranks.values())[:most]]
        assert made.least(most) == expected
        assert made.least(most) == expected
        assert len(made) == len(ranks)


def test_an_order_of_loads_keeps_no_more_than_it_needs() -> None:
    made = LoadOrder()
    for turn in range(10_000):
        made.put(Rank(float(turn % 977), 0, turn, NAMES[turn % 8]))
    assert len(made._heap) <= 2 * 8 + 65  # pyright: ignore[reportPrivateUsage]


held = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3))


@settings(deadline=None, max_examples=200)
@given(held, st.integers(0, 9), st.integers(0, 9))
def test_held_blocks_are_a_dict_by_length(
    lengths: dict[WorkerId, int], most: int, turn: int
) -> None:
    bit_of = {worker: 1 << number for number, worker in enumerate(NAMES)}
    ends = [
        (blocks, sum(bit_of[worker] for worker, one in lengths.items() if one == blocks))
        for blocks in sorted(set(lengths.values()))
    ]
    made = HeldBlocks(ends, bit_of, {bit: worker for worker, bit in bit_of.items()})
    assert dict(made) == lengths
    assert len(made) == len(lengths)
    assert all(made.get(worker) == lengths.get(worker, 0) for worker in NAMES)
    longest = made.longest(most, turn)
    assert len(longest) == min(most, len(lengths))
    assert all(lengths[worker] == blocks for blocks, worker in longest)
    left = [blocks for worker, blocks in lengths.items() if (blocks, worker) not in longest]
    assert not longest or not left or max(left) <= longest[-1][0]
    assert len({worker for _, worker in longest}) == len(longest)


def test_a_short_list_has_the_least_loaded_of_each_group_and_some_by_chance() -> None:
    short = ShortList(LinearTimes(), seed=1)
    beliefs = {
        id: WorkerBelief(info(id, role), LinearTimes())
        for role in (Role.PREFILL, Role.DECODE)
        for id in (f"{role.value}-{number:03}" for number in range(100))
    }
    for number, belief in enumerate(beliefs.values()):
        load = 1 + number % 100 * 7 % 100
        belief.reported(view(waiting_tokens=load, running_sequences=load), 0.0)
        short.changed(belief)
    least = {f"{role}-{number:03}" for role in ("prefill", "decode") for number in (0, 43, 86, 29)}
    drawn = [set(short.draw()) for _ in range(60)]
    assert all(least <= some for some in drawn)
    assert all(len(some) <= 16 for some in drawn)
    assert len(set().union(*drawn)) > 150, "whoever is drawn, all come up"
    wanted = beliefs["decode-000"].exchange
    assert all(one.startswith("decode") for one in short.draw(wanted))


def test_who_is_not_well_is_not_on_the_list_and_comes_back() -> None:
    short = ShortList(LinearTimes(), seed=1)
    beliefs = [WorkerBelief(info(id), LinearTimes()) for id in NAMES[:3]]
    for belief in beliefs:
        short.changed(belief)
    assert set(short.draw()) == set(NAMES[:3])
    beliefs[0].health = Health.DRAINING
    short.changed(beliefs[0])
    short.left(NAMES[1])
    assert set(short.draw()) == {NAMES[2]}
    beliefs[0].health = Health.JOINED
    beliefs[0].role = Role.DECODE
    short.changed(beliefs[0])
    assert set(short.draw()) == {NAMES[0], NAMES[2]}


# ── the router with many workers ─────────────────────────────────────────────────────────────────


class Counting(MostHeadroom):
    """Remembers how many options it was shown."""

    shown: list[int] = []  # noqa: RUF012  one test at a time

    def best(self, options: Sequence[Option]) -> Option:
        self.shown.append(len(options))
        return super().best(options)


def many(number: int = MANY, **settings: object) -> Router:
    Counting.shown = []
    parts = Parts(scorer=lambda policy, seed: Counting())
    return router(
        *(info(f"w{worker:04}") for worker in range(number)),
        parts=parts,
        ttft_s=10.0,
        **settings,  # pyright: ignore[reportArgumentType]
    )


def test_a_few_of_many_are_predicted_for() -> None:
    made = many(1000)
    for number in range(200):
        assert isinstance(made.choose(request(f"r{number}"), 0.0), Route)
    assert max(Counting.shown) <= MOST_SEEN
    assert {worker.load.requests for worker in made.workers} == {0, 1}, "no herd: each has one"


def test_few_workers_are_all_predicted_for() -> None:
    made = many(64)
    made.choose(request("r"), 0.0)
    assert Counting.shown == [64]


@pytest.mark.parametrize("roles", [(Role.MIXED,) * 4, (Role.PREFILL,) * 3 + (Role.DECODE,) * 4])
def test_a_list_of_all_decides_as_all_do(roles: tuple[Role, ...]) -> None:
    """Groups of at most four are on the list whole."""

    def decisions(most_predicted: int) -> list[object]:
        infos = [info(f"w{number}", role) for number, role in enumerate(roles)]
        made = router(*infos, limits=RouterLimits(most_predicted=most_predicted))
        found: list[object] = []
        for number in range(120):
            now, one = number * 0.02, request(f"r{number}", 20 + number * 37 % 600)
            found.append(made.choose(one, now))
            if number % 3 == 0:
                made.prefilled(one.id, now)
                found.append(made.choose_decode(offer_of(infos[0], one), one, now))
            if number >= 9:
                made.settled(request(f"r{number - 9}").id, now)
            where = infos[number % len(infos)].id
            report(made, where, now, running=number % 3, waiting_tokens=number % 5 * 100)
        return found

    assert decisions(1) == decisions(64)


def test_the_holder_of_a_prefix_is_found_among_many() -> None:
    made = many()
    keys: list[BlockKey] = []
    prompt = tuple(range(1, 1025))
    BlockKeys(identity=bytes(32), numerics="avx512").extend(keys, prompt, 15)
    for worker in made.workers:
        holder = Holder(worker.info.id, kept=100)
        if worker.info.id == "w0123":
            for key in keys:
                holder.change(key, Tier.DEVICE, True)
        for part in holder.dump():
            made.heard_kv(worker.info.id, worker.info.incarnation, part, 0.0)
    for number in range(MANY):  # everybody has something to do
        made.choose(request(f"other{number}"), 0.0)
    route = made.choose(replace(request("r"), prompt=prompt), 0.0)
    assert isinstance(route, Route)
    assert route.decode == "w0123"


def test_one_with_room_is_found_and_nobody_with_room_is_said() -> None:
    made = many()
    full = {"held_pages": PAGES, "running": 1, "waiting": 2, "waiting_tokens": 1}
    for worker in made.workers:
        if worker.info.id != "w0077":
            report(made, worker.info.id, **full)
    # It looks busier than all that are full.
    report(made, "w0077", running=1, waiting=1, waiting_tokens=5000)
    route = made.choose(request("r"), 0.0)
    assert isinstance(route, Route)
    assert route.decode == "w0077"
    report(made, "w0077", **full)
    assert isinstance(made.choose(request("s"), 0.0), Hold)


def test_nobody_who_drains_is_chosen_of_many() -> None:
    made = many()
    for number in range(0, MANY, 2):
        health(made, f"w{number:04}", Health.DRAINING)
    for number in range(100):
        route = made.choose(request(f"r{number}"), 0.0)
        assert isinstance(route, Route)
        assert int(route.decode[1:]) % 2


def test_joining_in_another_order_changes_no_decision() -> None:
    def chosen(order: Sequence[int]) -> list[object]:
        made = router(*(info(f"w{worker:04}") for worker in order))
        return [made.choose(request(f"r{number}"), 0.0) for number in range(50)]

    assert chosen(range(100)) == chosen(range(99, -1, -1))
