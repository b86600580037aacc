"""The search for cycles is rare during a run, and as it was before after it."""

import gc
from collections.abc import Callable

import pytest
from small_fleet import pool, single_calls, spec

from antiphon.core.faults import At, Crash, FaultPlan, ProcessFault
from antiphon.sim.fleet import Fleet, UserRules
from antiphon.types import CallRecord, Role, WorkerId

EVERY_S = 0.05


class Ended(Exception):
    """Whoever looks on wants no more."""


def test_a_run_leaves_the_thresholds_as_they_were() -> None:
    before, within = gc.get_threshold(), []
    fleet = Fleet(spec(pool(Role.MIXED, 1)), single_calls(3, 0.1), UserRules(), lambda _: None)
    fleet.run(on_progress=lambda _: within.append(gc.get_threshold()))
    assert within[0][0] > 10 * before[0]
    assert gc.get_threshold() == before


def test_also_one_that_is_broken_off() -> None:
    def end(_: float) -> None:
        raise Ended

    before = gc.get_threshold()
    fleet = Fleet(spec(pool(Role.MIXED, 1)), single_calls(3, 0.1), UserRules(), lambda _: None)
    with pytest.raises(Ended):
        fleet.run(on_progress=end)
    assert gc.get_threshold() == before


def ignore(_: CallRecord) -> None:
    """Nobody looks at it."""


def cycles(calls: int, observe: Callable[[CallRecord], None] = ignore) -> int:
    """What a run of so many calls drops, that only a search finds. For each 20 calls a worker that
    has work crashes, so that as many more are resumed elsewhere."""
    crashes = [(EVERY_S * (20 * n + 10), f"decode-{n % 2}") for n in range(calls // 20)]
    plan = FaultPlan(0, tuple(ProcessFault(At(1.0 + at), who, Crash(0.2)) for at, who in crashes))
    fleet = Fleet(
        spec(pool(Role.PREFILL, 1), pool(Role.DECODE, 2), faults=plan),
        single_calls(calls, EVERY_S, prompt=300, output=60),
        UserRules(),
        observe,
    )
    assert fleet.join_s == 1.0
    hit: list[int] = []
    for at, who in crashes:
        id = WorkerId(who)
        fleet.at(at - 0.001, lambda id=id: hit.append(fleet.views()[id].running))
    gc.collect()
    gc.disable()
    try:
        fleet.run()
        found = gc.collect()
    finally:
        gc.enable()
    assert len(fleet.cluster.faults.injected) == len(crashes)
    assert min(hit) > 0
    return found


def test_what_a_run_drops_is_no_cycle() -> None:
    """What is found, if anything, is of the run as a whole: twice the calls drop no more."""
    assert cycles(80) == cycles(40)


def test_control_one_cycle_in_twenty_calls_is_found() -> None:
    def leak(record: CallRecord) -> None:
        if record.number % 20 == 0:
            itself: list[object] = []
            itself.append(itself)

    assert cycles(80, leak) == cycles(40, leak) + 2
