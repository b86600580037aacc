"""A fault that can hit nobody is refused before the load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.faults import (
    GATEWAY,
    STORE,
    AnyWorker,
    At,
    Crash,
    Resume,
    ScheduledAction,
    ScheduledFault,
    Stall,
    Target,
)
from antiphon.drill import check_feasible
from antiphon.drill.lives import Life
from antiphon.drill.victim import choose_victim
from antiphon.errors import UsageError
from antiphon.types import Role

KILL, STOP = Crash(None), Stall(1.0)
PAIRS = [("prefill-0", Role.PREFILL), ("prefill-1", Role.PREFILL), ("decode-0", Role.DECODE)]


def fault(target: Target, action: ScheduledAction = KILL, entry: int = 1) -> ScheduledFault:
    return ScheduledFault(
        number=entry, entry=entry, trigger=At(0.0), target=target, action=action, once=True
    )


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ([fault("decode-9")], 'fault 1 (kill): target: there is no worker "decode-9"'),
        ([fault("prefill-0"), fault("x", entry=2)], "fault 2 (kill)"),
        ([fault(AnyWorker(Role.DECODE))], 'target: "decode": no worker can be spared'),
        ([fault(AnyWorker(Role.MIXED))], 'no worker "mixed"'),
        ([fault(AnyWorker(Role.PREFILL), Resume())], 'no fault of the plan stops "prefill"'),
        ([fault("prefill-0", Resume()), fault("prefill-1", STOP, 2)], "no fault of the plan stops"),
        ([fault("prefill-0", Resume()), fault(AnyWorker(Role.DECODE), STOP, 2)], "stops"),
    ],
)
def test_who_can_not_be_hit_is_named(faults: list[ScheduledFault], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_feasible(faults, PAIRS)
    assert says in str(caught.value)


def test_a_store_must_be_there() -> None:
    with pytest.raises(UsageError, match="no store"):
        check_feasible([fault(STORE)], PAIRS, has_store=False)
    check_feasible([fault(STORE), fault(GATEWAY)], PAIRS)


@pytest.mark.parametrize(
    "faults",
    [
        [fault("decode-0")],
        [fault(AnyWorker())],
        [fault("prefill-0", STOP), fault("prefill-0", Resume(), 2)],
        [fault(AnyWorker(), STOP), fault("prefill-0", Resume(), 2)],
        [fault("prefill-0", STOP), fault(AnyWorker(), Resume(), 2)],
        [fault(GATEWAY, STOP), fault(GATEWAY, Resume(), 2)],
    ],
)
def test_who_can_be_hit_is(faults: list[ScheduledFault]) -> None:
    check_feasible(faults, PAIRS)


@given(
    st.lists(st.sampled_from(Role), max_size=5),
    st.sampled_from([AnyWorker(), *map(AnyWorker, Role), "w-0", "w-3"]),
)
def test_it_agrees_with_the_choice_in_a_cluster_at_rest(roles: list[Role], target: Target) -> None:
    workers = [(f"w-{number}", role) for number, role in enumerate(roles)]
    lives = {
        name: Life(name=name, role=role.value, pid=7, life="1", there=True)
        for name, role in workers
    }
    hit = choose_victim(fault(target), lives, frozenset(), 1)
    try:
        check_feasible([fault(target)], workers)
    except UsageError:
        assert hit is None
    else:
        assert hit is not None
