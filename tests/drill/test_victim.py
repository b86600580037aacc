import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.draws import Draws
from antiphon.drill.victim import choose_victim
from antiphon.live.admin.status import WorkerStatus
from antiphon.types import Role


def worker(id: str, role: Role, health: str = "joined", pid: int | None = 7) -> WorkerStatus:
    return WorkerStatus(id=id, role=role, health=health, pid=pid)


WORKERS = st.lists(
    st.tuples(st.sampled_from(Role), st.sampled_from(["joined", "starting", "suspect"])),
    max_size=6,
).map(lambda kinds: [worker(f"w-{i}", role, health) for i, (role, health) in enumerate(kinds)])


def serves(one: WorkerStatus, phase: Role) -> bool:
    return one.health == "joined" and one.role in (phase, Role.MIXED)


@given(WORKERS, st.integers(0, 2**40), st.integers(0, 50))
def test_each_phase_of_the_victim_is_left_with_somebody(
    workers: list[WorkerStatus], seed: int, number: int
) -> None:
    victim = choose_victim(workers, Draws(seed), number)
    if victim is None:
        return
    assert victim.health == "joined"
    rest = [one for one in workers if one is not victim]
    for phase in (Role.PREFILL, Role.DECODE):
        if serves(victim, phase):
            assert any(serves(one, phase) for one in rest)


@given(st.integers(0, 2**40), st.permutations(range(4)))
def test_the_choice_repeats_with_the_seed_in_any_order(seed: int, order: list[int]) -> None:
    workers = [worker(f"w-{i}", Role.MIXED) for i in range(4)]
    shuffled = [workers[i] for i in order]
    assert choose_victim(workers, Draws(seed), 0) == choose_victim(shuffled, Draws(seed), 0)


def test_everybody_who_can_be_spared_is_hit_some_time() -> None:
    workers = [worker("p-0", Role.PREFILL), worker("p-1", Role.PREFILL), worker("d-0", Role.DECODE)]
    hit = {choose_victim(workers, Draws(1), number) for number in range(40)}
    assert {one.id for one in hit if one} == {"p-0", "p-1"}


@pytest.mark.parametrize(
    "workers",
    [[], [worker("m-0", Role.MIXED)], [worker("p-0", Role.PREFILL), worker("d-0", Role.DECODE)]],
)
def test_nobody_can_be_spared(workers: list[WorkerStatus]) -> None:
    assert choose_victim(workers, Draws(1), 0) is None
