import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.faults import (
    AnyWorker,
    At,
    Crash,
    Resume,
    ScheduledAction,
    ScheduledFault,
    Target,
)
from antiphon.drill.lives import Life
from antiphon.drill.victim import choose_victim
from antiphon.types import Role

ANYBODY, KILL = AnyWorker(), Crash(None)


def worker(name: str, role: Role, there: bool = True, pid: int | None = 7) -> Life:
    return Life(name=name, role=role.value, pid=pid, life="1", there=there)


def fault(
    number: int = 0, target: Target = ANYBODY, action: ScheduledAction = KILL
) -> ScheduledFault:
    return ScheduledFault(
        number=number, entry=1, trigger=At(0.0), target=target, action=action, once=True
    )


def chosen(
    lives: list[Life],
    planned: ScheduledFault,
    under_fault: frozenset[str] = frozenset(),
    seed: int = 1,
) -> str | None:
    victim = choose_victim(planned, {life.name: life for life in lives}, under_fault, seed)
    return None if victim is None else victim.name


WORKERS = st.lists(st.tuples(st.sampled_from(Role), st.booleans()), max_size=6).map(
    lambda kinds: [worker(f"w-{i}", role, there) for i, (role, there) in enumerate(kinds)]
)
SEEDS = st.integers(0, 2**40)


def serves(one: Life, phase: Role) -> bool:
    return one.there and one.role in (phase, Role.MIXED)


@given(WORKERS, SEEDS, st.integers(0, 50), st.sampled_from([None, *Role]))
def test_each_phase_of_the_victim_is_left_with_somebody(
    workers: list[Life], seed: int, number: int, role: Role | None
) -> None:
    name = chosen(workers, fault(number, AnyWorker(role)), seed=seed)
    if name is None:
        return
    victim = next(one for one in workers if one.name == name)
    assert victim.there
    assert role in (None, victim.role)
    rest = [one for one in workers if one is not victim]
    for phase in (Role.PREFILL, Role.DECODE):
        if serves(victim, phase):
            assert any(serves(one, phase) for one in rest)


@given(SEEDS, st.permutations(range(4)))
def test_the_choice_repeats_with_the_seed_in_any_order(seed: int, order: list[int]) -> None:
    workers = [worker(f"w-{i}", Role.MIXED) for i in range(4)]
    shuffled = [workers[i] for i in order]
    assert chosen(workers, fault(), seed=seed) == chosen(shuffled, fault(), seed=seed)


@given(SEEDS, st.integers(0, 3))
def test_whoever_is_away_changes_no_other_choice(seed: int, away: int) -> None:
    workers = [worker(f"w-{i}", Role.MIXED) for i in range(4)]
    first = chosen(workers, fault(), seed=seed)
    rest = [one for one in workers if one.name != f"w-{away}"]
    if first != f"w-{away}":
        assert chosen(rest, fault(), seed=seed) == first


def test_everybody_who_can_be_spared_is_hit_some_time() -> None:
    workers = [worker("p-0", Role.PREFILL), worker("p-1", Role.PREFILL), worker("d-0", Role.DECODE)]
    assert {chosen(workers, fault(number)) for number in range(40)} == {"p-0", "p-1"}


@pytest.mark.parametrize(
    "workers",
    [[], [worker("m-0", Role.MIXED)], [worker("p-0", Role.PREFILL), worker("d-0", Role.DECODE)]],
)
def test_nobody_can_be_spared(workers: list[Life]) -> None:
    assert chosen(workers, fault()) is None


def test_who_is_named_is_hit_though_nobody_else_does_his_work() -> None:
    alone = [worker("m-0", Role.MIXED)]
    named = fault(target="m-0")
    assert chosen(alone, named) == "m-0"
    assert chosen(alone, named, frozenset({"m-0"})) is None
    assert chosen([worker("m-0", Role.MIXED, there=False)], named) is None
    assert chosen(alone, fault(target="m-1")) is None


def test_only_who_is_under_fault_can_go_on_again() -> None:
    workers = [worker("m-0", Role.MIXED), worker("m-1", Role.MIXED)]
    go_on = fault(action=Resume())
    assert chosen(workers, go_on) is None
    assert chosen(workers, go_on, frozenset({"m-1"})) == "m-1"
    assert chosen(workers, fault(target="m-0", action=Resume()), frozenset({"m-1"})) is None
