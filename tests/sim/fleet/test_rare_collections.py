"""The search for cycles is rare during a run, and as it was before after it."""

import gc

import pytest
from small_fleet import pool, single_calls, spec

from antiphon.sim.fleet import Fleet, UserRules
from antiphon.types import Role


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


def test_what_a_run_drops_is_no_cycle() -> None:
    calls = 40
    fleet = Fleet(
        spec(pool(Role.PREFILL, 1), pool(Role.DECODE, 1)),
        single_calls(calls, 0.05, prompt=300),
        UserRules(),
        lambda _: None,
    )
    gc.collect()
    gc.disable()
    try:
        fleet.run()
        found = gc.collect()
    finally:
        gc.enable()
    assert found < calls
