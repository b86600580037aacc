"""What the planner does, step by step."""

import random
from dataclasses import replace
from math import cos, pi

import pytest
from planner_kit import (
    DECODE,
    MIXED,
    PREFILL,
    SLO,
    Plant,
    capacity,
    drive,
    planner,
    rules,
    seen,
    turns,
)

from antiphon.core.planner import Add, Flip, Planner, PoolSeen, Shape, Take
from antiphon.core.planner.calm import Calm
from antiphon.core.planner.need import Load, Need, need_of
from antiphon.core.planner.pace import Pace
from antiphon.core.planner.sharing import moves, share, targets
from antiphon.core.planner.usual import Usual
from antiphon.errors import UsageError
from antiphon.types import Role

KIND = capacity()


def pool(role: Role, ready: int, **more: float) -> PoolSeen:
    return PoolSeen(role=role, ready=ready, **more)  # pyright: ignore


def need(workers: int, enough: int | None = None, floor: int = 0) -> Need:
    enough = workers if enough is None else enough
    return Need(workers=workers, enough=enough, why="", floor=floor)


# ── floor and reaction ───────────────────────────────────────────────────────────────────────────


def test_it_grows_at_once_to_what_the_forecast_needs() -> None:
    there = seen(15.0, 300, pool(PREFILL, 1), pool(DECODE, 1))
    usual = Usual()
    usual.observe(there)
    decision = planner(rules()).decide(there)
    expected = {role: KIND.workers(role, 21.0, usual.shape, SLO, 16) for role in (PREFILL, DECODE)}
    assert dict(decision.target) == expected
    assert min(expected.values()) > 1
    assert {type(move) for move in decision.moves} == {Add}
    assert decision.expected_per_s == 20.0
    assert "20 requests/s expected (constant)" in decision.reason


def test_workers_that_are_coming_count() -> None:
    one = planner(rules())
    first = one.decide(seen(15.0, 300, pool(PREFILL, 1), pool(DECODE, 1)))
    coming = {move.role: move.workers for move in first.moves if isinstance(move, Add)}
    again = one.decide(
        seen(30.0, 300, *(pool(role, 1, starting=count) for role, count in coming.items()))
    )
    assert not again.moves


def test_a_queue_counts_as_work_though_no_latency_shows_it() -> None:
    one = planner(rules())
    quiet = one.decide(seen(15.0, 30, pool(PREFILL, 1), pool(DECODE, 1)))
    assert not quiet.moves
    queued = one.decide(seen(30.0, 30, pool(PREFILL, 1, held=1000), pool(DECODE, 1)))
    assert Add(PREFILL, 1) in queued.moves
    assert "1000 queued" in queued.reason


def test_a_queue_that_is_over_within_the_target_is_none() -> None:
    one = planner(rules(ready_s=0, clear_s=0.1))
    assert not one.decide(
        seen(15.0, 30, pool(PREFILL, 1, queued_tokens=3000), pool(DECODE, 1))
    ).moves
    assert one.decide(seen(30.0, 30, pool(PREFILL, 1, queued_tokens=6000), pool(DECODE, 1))).moves


def test_sequences_in_work_beyond_their_places_ask_for_more_workers() -> None:
    one = planner(rules())
    full = one.decide(seen(15.0, 30, pool(PREFILL, 1), pool(DECODE, 1, running=40)))
    assert not full.moves
    beyond = one.decide(seen(30.0, 30, pool(PREFILL, 1), pool(DECODE, 1, running=90)))
    assert beyond.moves == (Add(DECODE, 1),)


def test_mixed_workers_need_room_for_both_phases() -> None:
    one = planner(rules(roles=(MIXED,)))
    assert not one.decide(seen(15.0, 15, pool(MIXED, 1, running=10))).moves
    assert one.decide(seen(30.0, 15, pool(MIXED, 1, running=90))).moves == (Add(MIXED, 1),)
    assert one.decide(seen(45.0, 15, pool(MIXED, 3, held=9000))).moves


# ── calm ─────────────────────────────────────────────────────────────────────────────────────────


def test_it_shrinks_only_when_fewer_were_enough_for_the_whole_cool_down() -> None:
    calm = Calm(rules(cool_down_s=30))
    four = pool(PREFILL, 4)
    assert calm.settle(0, four, need(1, 2), 5.0) == 4
    assert calm.settle(15, four, need(1, 3), 5.0) == 4
    assert calm.settle(30, four, need(1, 1), 5.0) == 3, "as many as it took in any interval"
    assert calm.settle(45, pool(PREFILL, 3), need(1, 1), 5.0) == 3, "and cools down anew"


def test_one_interval_that_needs_all_of_them_begins_the_cool_down_anew() -> None:
    calm = Calm(rules(cool_down_s=30))
    for at, enough in ((0, 2), (15, 2), (30, 4), (45, 2), (60, 2)):
        assert calm.settle(at, pool(PREFILL, 4), need(1, enough), 5.0) == 4
    assert calm.settle(75, pool(PREFILL, 4), need(1, 2), 5.0) == 2


@pytest.mark.parametrize("state", [{"starting": 1}, {"cold": 1}])
def test_nothing_goes_while_something_has_just_come(state: dict[str, int]) -> None:
    calm = Calm(rules(cool_down_s=0))
    there = pool(PREFILL, 4, **state)
    assert calm.settle(0, there, need(1), 5.0) == there.workers


def test_a_size_that_was_given_up_too_early_is_kept_at_that_load() -> None:
    calm = Calm(rules(cool_down_s=0, memory_s=600))
    assert calm.settle(0, pool(DECODE, 3), need(2), 10.0) == 2
    assert calm.settle(15, pool(DECODE, 2), need(3), 10.5) == 3
    assert calm.settle(30, pool(DECODE, 3), need(2), 10.0) == 3
    assert calm.settle(45, pool(DECODE, 3), need(2), 5.0) == 2, "far less comes: that is new"
    assert calm.settle(60, pool(DECODE, 3), need(2), 10.0) == 3
    assert calm.settle(630, pool(DECODE, 3), need(2), 10.0) == 2, "and it is forgotten"


def test_a_size_that_was_never_given_up_is_not_kept() -> None:
    calm = Calm(rules(cool_down_s=0))
    assert calm.settle(0, pool(DECODE, 1), need(5), 10.0) == 5, "a queue at the start, say"
    assert calm.settle(15, pool(DECODE, 5), need(2), 10.0) == 2


def test_what_a_queue_asked_for_is_not_remembered_as_what_the_load_needs() -> None:
    calm = Calm(rules(cool_down_s=0))
    assert calm.settle(0, pool(DECODE, 9), need(2), 10.0) == 2
    assert calm.settle(15, pool(DECODE, 2), need(9, floor=4), 10.0) == 9
    assert calm.settle(30, pool(DECODE, 9), need(2), 10.0) == 4, "the forecast wanted so many"


def test_what_an_operator_has_added_is_not_taken_back() -> None:
    calm = Calm(rules(cool_down_s=0))
    assert calm.settle(0, pool(DECODE, 3, pinned=1), need(2), 10.0) == 3
    assert calm.settle(15, pool(DECODE, 3, pinned=1), need(1), 10.0) == 2
    assert calm.settle(30, pool(DECODE, 3, pinned=1), need(4), 10.0) == 4


# ── pace and what is usual ───────────────────────────────────────────────────────────────────────


def pace_of(role: Role, *intervals: PoolSeen) -> float:
    pace, usual = Pace(role), Usual()
    usual.observe(seen(15.0, 100))
    for one in intervals:
        pace.observe(one, 15.0, usual.shape, KIND)
    return pace.slower


def test_the_pace_of_prompts_is_that_of_their_tokens() -> None:
    true = pool(PREFILL, 2, busy_s=15.0, steps=100, tokens=100_000)
    assert pace_of(PREFILL, true) == pytest.approx(1.25), "the profile counts as one measurement"
    assert pace_of(PREFILL, *[true] * 60) == pytest.approx(1.5, rel=1e-3)


def test_a_pool_of_cold_workers_says_nothing_of_its_pace() -> None:
    assert pace_of(PREFILL, pool(PREFILL, 2, cold=2)) == 1.0
    assert pace_of(DECODE, pool(DECODE, 2, cold=2, running=9)) == 1.0
    assert pace_of(MIXED, pool(MIXED, 2, cold=2)) == 1.0


def test_the_pace_of_decoding_is_that_of_a_step_of_as_many() -> None:
    half = pool(DECODE, 1, running=10, busy_s=7.5, steps=7.5 / 0.024)  # 20 when there are any
    assert pace_of(DECODE, *[half] * 60) == pytest.approx(0.024 / 0.012, rel=1e-3)
    beside_cold = replace(half, ready=2, cold=1, running=20)
    assert pace_of(DECODE, beside_cold) == 1.0, "how many the cold one has is not known"


@pytest.mark.parametrize("slower", [0.5, 1.0, 2.5])
def test_the_pace_of_mixed_workers_is_that_of_their_decodes_and_their_prompts(
    slower: float,
) -> None:
    """500 passes of 10 decodes each, and 10,000 tokens of prompts in some of them."""
    busy_s = slower * (500 * 0.008 + 10_000 * 1e-4)
    one = pool(MIXED, 1, running=10 * busy_s / 15, busy_s=busy_s, steps=500, tokens=15_000)
    assert pace_of(MIXED, *[one] * 60) == pytest.approx(slower, rel=1e-3)


def test_one_mad_measurement_moves_little() -> None:
    true = pool(PREFILL, 2, busy_s=10.0, steps=100, tokens=100_000)
    assert pace_of(PREFILL, *[true] * 9, replace(true, busy_s=1e9)) <= 1.6
    assert pace_of(PREFILL, *[true] * 9, replace(true, busy_s=1e-9)) >= 0.8


@pytest.mark.parametrize("slower", [0.7, 1.0, 2.0])
def test_a_fleet_is_sized_by_what_it_does_and_not_by_its_profile(slower: float) -> None:
    given = rules(budget=40)
    plant, usual = Plant(given, slower=slower), Usual()
    decisions = drive(plant, planner(given), lambda _: 300.0, hours=0.5)
    assert all(one.queue < 1 for one in plant.pools.values())
    usual.observe(seen(15.0, 300))
    truth = KIND.at_pace(slower)
    for role, wanted in decisions[-1].wanted:
        assert wanted == truth.workers(role, 21.0, usual.shape, SLO, 40)
        assert plant.sizes[-1][role] <= wanted + 1
    assert (f"{slower:.2f} times the profile's times" in decisions[-1].reason) == (slower != 1)


def test_misses_of_cold_caches_are_not_what_is_usual() -> None:
    usual = Usual()
    usual.observe(seen(15.0, 10, pool(PREFILL, 1), hit_rate=0.8))
    for _ in range(20):
        usual.observe(seen(30.0, 10, pool(PREFILL, 2, cold=1), hit_rate=0.0))
    assert usual.shape.uncached == pytest.approx(200)


# ── budget and moves ─────────────────────────────────────────────────────────────────────────────


def test_a_budget_is_shared_in_the_proportions_of_what_is_wanted() -> None:
    both = {PREFILL: 1, DECODE: 1}
    assert share({PREFILL: 12, DECODE: 6}, 1, 9, both) == {PREFILL: 6, DECODE: 3}
    assert share({PREFILL: 50, DECODE: 1}, 1, 9, both) == {PREFILL: 8, DECODE: 1}
    assert share({PREFILL: 4, DECODE: 4}, 1, 9, {PREFILL: 2, DECODE: 1}) == {PREFILL: 3, DECODE: 3}


def test_under_a_full_budget_a_shift_of_the_load_flips_workers() -> None:
    one = planner(rules(budget=8, cool_down_s=15))
    pools = [pool(PREFILL, 6), pool(DECODE, 2)]
    found: list[object] = []
    for turn in range(1, 8):
        found += one.decide(
            seen(15.0 * turn, 150, *pools, input_tokens=200.0, output_tokens=2000.0)
        ).moves
        if found:
            break
    assert any(isinstance(move, Flip) and move.to is DECODE for move in found)
    assert not any(isinstance(move, Add) for move in found)


def test_pools_of_unequal_devices_do_not_flip() -> None:
    there = seen(15.0, 1, pool(PREFILL, 3), pool(DECODE, 1))
    devices = {PREFILL: 1, DECODE: 2}
    target = targets({PREFILL: 1, DECODE: 2}, there, 5, devices)
    assert target == {PREFILL: 1, DECODE: 2}
    assert moves(target, there, 5, devices) == [Take(PREFILL, 2)], "the devices are not free yet"
    assert moves(target, there, 7, devices) == [Take(PREFILL, 2), Add(DECODE, 1)]


def test_flips_come_before_adds_and_pinned_workers_do_not_flip() -> None:
    there = seen(15.0, 1, pool(PREFILL, 4, pinned=1), pool(DECODE, 1))
    equal = {PREFILL: 1, DECODE: 1}
    assert moves({PREFILL: 1, DECODE: 5}, there, 9, equal) == [
        Flip(PREFILL, DECODE, 3),
        Add(DECODE, 1),
    ]


def test_what_drains_still_has_its_device() -> None:
    there = seen(15.0, 1, pool(PREFILL, 2, draining=1), pool(DECODE, 1))
    equal = {PREFILL: 1, DECODE: 1}
    assert moves({PREFILL: 2, DECODE: 3}, there, 5, equal) == [Add(DECODE, 1)]


# ── what comes, and what may ─────────────────────────────────────────────────────────────────────


def sine(at: float) -> float:
    return 25 - 20 * cos(2 * pi * at / 600)


def test_who_was_told_of_earlier_days_grows_before_the_first_rise() -> None:
    history = [sine(15.0 * n) for n in range(80)]
    there = seen(15.0, 15 * sine(0), pool(PREFILL, 1), pool(DECODE, 1))
    knows = Planner(rules(), {PREFILL: KIND, DECODE: KIND}, history=history).decide(there)
    guesses = planner(rules()).decide(there)
    assert knows.expected_per_s == pytest.approx(sine(75), abs=1.5)
    assert knows.expected_per_s > guesses.expected_per_s + 5
    assert sum(dict(knows.target).values()) > sum(dict(guesses.target).values())


def test_a_step_that_chance_cannot_explain_is_believed_at_once() -> None:
    one = planner(rules())
    chance = random.Random(2)
    for turn in range(1, 60):
        last = one.decide(
            seen(15.0 * turn, chance.gauss(300, 17), pool(PREFILL, 3), pool(DECODE, 4))
        )
    assert last.expected_per_s == pytest.approx(20, abs=2.0)
    step = one.decide(seen(900.0, 750, pool(PREFILL, 3), pool(DECODE, 4)))
    assert step.expected_per_s > 45.0


def test_a_history_of_no_numbers_counts_as_nothing() -> None:
    there = seen(15.0, 30, pool(PREFILL, 1), pool(DECODE, 1))
    history = [float("nan"), -1.0, float("inf"), 1e300]
    found = Planner(rules(), {PREFILL: KIND, DECODE: KIND}, history=history).decide(there)
    assert found.expected_per_s <= 2.0


def of(expected: float, later: float | None = None, short: float = 0.0, error: float = 0.0) -> Load:
    shape = Shape(input_tokens=1000, output_tokens=301, uncached=1000)
    return Load(
        now_per_s=expected,
        expected_per_s=expected,
        later_per_s=expected if later is None else later,
        short_per_s=short,
        error_per_s=error,
        seconds=15.0,
        shape=shape,
    )


def test_what_forecasts_fell_short_by_lately_is_kept_in_hand() -> None:
    there, given = pool(PREFILL, 3), rules()
    plain = need_of(PREFILL, there, of(20.0), KIND, given)
    assert need_of(PREFILL, there, of(20.0, short=0.9), KIND, given) == plain, "headroom covers it"
    more = need_of(PREFILL, there, of(20.0, short=15.0), KIND, given)
    assert more.floor == KIND.workers(PREFILL, 35.0, of(20.0).shape, SLO, 16) > plain.floor


def test_who_will_be_needed_again_soon_does_not_go() -> None:
    there, given = pool(PREFILL, 4), rules()
    now = need_of(PREFILL, there, of(5.0), KIND, given)
    soon = need_of(PREFILL, there, of(5.0, later=25.0), KIND, given)
    assert now.workers == soon.workers == 1
    assert now.enough == 1
    assert soon.enough == KIND.workers(PREFILL, 25.25 + 2.5, of(5.0).shape, SLO, 16)


# ── whole runs ───────────────────────────────────────────────────────────────────────────────────


def test_a_load_that_rises_and_falls_is_followed() -> None:
    given = rules(budget=30)
    plant = Plant(given)
    drive(plant, planner(given), lambda at: 15 * (25 - 20 * cos(2 * pi * at / 600)), hours=1)
    late = [sum(sizes.values()) for sizes in plant.sizes[80:]]
    assert max(late) >= 1.7 * min(late)
    assert turns(plant.sizes) <= 24, "twice a period, and not once more"
    assert plant.device_s / 3600 < 0.9 * max(late)


def test_a_worker_that_died_is_replaced() -> None:
    given = rules()
    plant, one = Plant(given), planner(given)
    drive(plant, one, lambda _: 300.0, hours=0.5)
    before = dict(plant.sizes[-1])
    plant.pools[PREFILL].ready -= 1
    drive(plant, one, lambda _: 300.0, hours=0.6)
    assert plant.sizes[-1] == before


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"budget": 1}, "budget = 1"),
        ({"least": 0}, "least = 0"),
        ({"roles": ()}, "roles"),
        ({"roles": (PREFILL, PREFILL)}, "roles"),
        ({"interval_s": 0.0}, "interval_s"),
        ({"headroom": -0.1}, "headroom"),
        ({"cool_down_s": float("nan")}, "cool_down_s"),
    ],
)
def test_rules_that_nobody_can_keep_are_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        planner(rules(**changed))


def test_a_role_without_capacity_is_refused() -> None:
    with pytest.raises(UsageError, match="decode"):
        Planner(rules(), {PREFILL: KIND})


def test_a_queue_that_stands_still_asks_for_one_more() -> None:
    calm = Calm(rules(ready_s=15, clear_s=15))
    stuck = replace(need(2, 5), waits=True)
    assert calm.settle(0, pool(PREFILL, 2), stuck, 5.0) == 2
    assert calm.settle(15, pool(PREFILL, 2), stuck, 5.0) == 2
    assert calm.settle(30, pool(PREFILL, 2), stuck, 5.0) == 3
    assert calm.settle(45, pool(PREFILL, 2, starting=1), stuck, 5.0) == 3, "help is coming"
    assert calm.settle(60, pool(PREFILL, 3), stuck, 5.0) == 3
    assert calm.settle(75, pool(PREFILL, 3), need(2, 5), 5.0) == 3
    assert calm.settle(105, pool(PREFILL, 3), stuck, 5.0) == 3, "it has not stood still since"
