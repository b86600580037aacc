"""Laws of the planner, whatever it sees: budget, least, calm, the same again, and a reason."""

from math import inf, nan

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from planner_kit import (
    DECODE,
    MIXED,
    PREFILL,
    Plant,
    capacity,
    drive,
    noisy,
    planner,
    rules,
    turns,
)

from antiphon.core.planner import Add, Flip, Observation, PoolSeen, Take

LAW = settings(
    deadline=None,
    max_examples=25,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
LONG = settings(LAW, max_examples=15)

COUNTS = st.integers(0, 12)
ANY = st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, -1.0, nan, inf, 1e300]))


@st.composite
def pools(draw: st.DrawFn, role: object) -> PoolSeen:
    ready, starting = draw(COUNTS), draw(st.integers(0, 4))
    return PoolSeen(
        role=role,  # pyright: ignore
        ready=ready,
        starting=starting,
        draining=draw(st.integers(0, 3)),
        cold=draw(st.integers(0, ready)),
        pinned=draw(st.integers(0, ready)),
        held=draw(ANY),
        queued=draw(ANY),
        queued_tokens=draw(ANY),
        running=draw(ANY),
        busy_s=draw(ANY),
        steps=draw(ANY),
        tokens=draw(ANY),
    )


@st.composite
def streams(draw: st.DrawFn) -> list[Observation]:
    found: list[Observation] = []
    at = 0.0
    for _ in range(draw(st.integers(1, 6))):
        at += 15.0
        found.append(
            Observation(
                at=at,
                seconds=draw(st.one_of(st.just(15.0), ANY)),
                requests=draw(ANY),
                input_tokens=draw(ANY),
                output_tokens=draw(ANY),
                hit_rate=draw(ANY),
                input_variation=draw(ANY),
                pools=tuple(draw(pools(role)) for role in (PREFILL, DECODE)),
            )
        )
    return found


def devices(pool: PoolSeen, each: int) -> int:
    return (pool.ready + pool.starting + pool.draining) * each


@LAW
@given(streams(), st.integers(1, 3), st.integers(1, 2))
def test_no_observation_breaks_budget_least_or_reason(
    stream: list[Observation], least: int, each: int
) -> None:
    budget = 10 * each
    one = planner(rules(budget=budget, least=least), decode=capacity(each), prefill=capacity(each))
    for seen in stream:
        decision = one.decide(seen)
        target = dict(decision.target)
        before = sum(pool.workers for pool in seen.pools) * each
        assert sum(target.values()) * each <= max(budget, before)
        if before <= budget - 2 * least * each:
            assert min(target.values()) >= least
        assert decision.reason.count("for the forecast") == 2
        assert decision.ask_again_at == seen.at + 15.0
        there = sum(devices(pool, each) for pool in seen.pools)
        for move in decision.moves:
            assert move.workers >= 1
            match move:
                case Add(workers=workers):
                    there += workers * each
                    assert there <= budget
                case Take(role, workers):
                    assert workers <= seen.pool(role).workers - seen.pool(role).pinned
                case Flip(role, to, workers):
                    assert role != to
                    assert workers <= seen.pool(role).ready - seen.pool(role).pinned


@LAW
@given(streams())
def test_equal_observations_give_equal_decisions(stream: list[Observation]) -> None:
    first, second = planner(rules()), planner(rules())
    assert [first.decide(seen) for seen in stream] == [second.decide(seen) for seen in stream]


@LONG
@given(
    per_s=st.floats(0.2, 60),
    slower=st.floats(0.6, 1.6),
    shy=st.booleans(),
    seed=st.integers(0, 999),
)
def test_a_constant_load_sees_at_most_two_turns_an_hour(
    per_s: float, slower: float, shy: bool, seed: int
) -> None:
    given = rules(budget=24)
    plant, hour, settled = Plant(given, slower=slower, shy=shy), 240, 40
    drive(plant, planner(given), noisy(per_s, 15.0, seed), hours=2)
    assert turns(plant.sizes[:settled]) <= 3, "from one worker and a queue, with a wrong profile"
    for begin in range(settled, len(plant.sizes) - hour + 1, 40):
        assert turns(plant.sizes[begin : begin + hour]) <= 2
    assert plant.devices <= 24


@LONG
@given(per_s=st.floats(0.2, 60), slower=st.floats(0.7, 1.5))
def test_a_load_without_noise_changes_nothing_after_it_has_settled(
    per_s: float, slower: float
) -> None:
    given = rules(budget=40)
    plant = Plant(given, slower=slower)
    drive(plant, planner(given), lambda _: per_s * 15, hours=1)
    settled = plant.sizes[100:]
    assert all(sizes == settled[0] for sizes in settled)
    assert all(pool.queue < 1 for pool in plant.pools.values()), "and what comes is served"


@LONG
@given(st.lists(st.floats(0, 900), min_size=20, max_size=80), st.integers(2, 12))
def test_what_exists_never_exceeds_the_budget(loads: list[float], budget: int) -> None:
    given = rules(budget=budget)
    plant, one = Plant(given), planner(given)
    for load in loads:
        plant.carry_out(one.decide(plant.interval(load)))
        assert plant.devices <= budget
        assert all(size >= 1 for size in plant.sizes[-1].values())


@pytest.mark.parametrize("role", [PREFILL, DECODE, MIXED])
def test_an_idle_fleet_comes_to_its_least(role: object) -> None:
    given = rules(roles=(role,))
    one = planner(given)
    found = [
        dict(
            one.decide(
                Observation(
                    at=15.0 * turn,
                    seconds=15.0,
                    requests=0,
                    input_tokens=nan,
                    output_tokens=nan,
                    pools=(PoolSeen(role=role, ready=4),),  # pyright: ignore
                )
            ).target
        )[role]  # pyright: ignore
        for turn in range(1, 20)
    ]
    assert found[0] == 4
    assert min(found) == 1
