"""Whom faults of a schedule hit, and for how long: told before anything runs."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.faults import (
    At,
    Crash,
    Cut,
    FillDisk,
    LinkFault,
    LoseBlocks,
    ProcessFault,
    Slow,
    Stall,
    StoreFault,
)
from antiphon.errors import UsageError
from antiphon.sim.fleet import parse_scenario, scheduled
from antiphon.sim.fleet.scheduled_faults import DRAIN_S, PlannedDrain, PlannedFaults

LOAD = '[load]\nworkload = "fixed:input=1,output=1"\n'
FLEET = (
    'model = "llama-3-8b"\nduration = "100s"\nstart = "20s"\n'
    + LOAD
    + "".join(
        f'[[pool]]\nrole = "{role}"\nworkers = 2\ndevice = "h100"\n'
        for role in ("prefill", "decode")
    )
)


def planned(*faults: str, seed: int = 1, after_s: float = 0.0) -> PlannedFaults:
    text = FLEET + "".join(f"[[fault]]\n{fault}\n" for fault in faults)
    return scheduled(parse_scenario(text, Path("it.toml"), seed), after_s=after_s)


def test_each_action_is_what_the_injector_calls_it() -> None:
    found = planned(
        'at = "1s"\ntarget = "decode-0"\naction = "kill"',
        'at = "2s"\ntarget = "decode-1"\naction = "slow"\nfactor = 3\nfor = "4s"',
        'at = "3s"\ntarget = "prefill-0"\naction = "cut"',
        'at = "4s"\ntarget = "prefill-1"\naction = "stop"\nfor = "5s"',
        'at = "5s"\ntarget = "gateway"\naction = "restart"',
        after_s=10.0,
    )
    assert found.plan.faults == (
        ProcessFault(At(11.0), "decode-0", Crash(20.0)),
        ProcessFault(At(12.0), "decode-1", Slow(3.0, 4.0)),
        LinkFault(At(13.0), ("prefill-0", "gateway"), Cut()),
        ProcessFault(At(14.0), "prefill-1", Stall(5.0)),
        ProcessFault(At(15.0), "gateway", Crash(0.5)),
    )


def test_what_comes_after_the_load_would_never_happen() -> None:
    with pytest.raises(UsageError, match="fault 1: at: 100 s is after the load, which lasts 100 s"):
        planned('at = "100s"\ntarget = "decode-0"\naction = "kill"')


def test_stores_lose_what_they_have_or_have_full_ssds() -> None:
    kill = 'at = "1s"\ntarget = "store"\naction = "kill"'
    full = 'at = "2s"\naction = "fill-disk"\nfor = "9s"'
    text = FLEET + "[store]\ngigabytes = 9\nssd-gigabytes = 90\n"
    text += "".join(f"[[fault]]\n{fault}\n" for fault in (kill, kill, full))
    found = scheduled(parse_scenario(text, Path("it.toml"), 1), after_s=10.0)
    lost = StoreFault(At(11.0), LoseBlocks())
    assert found.plan.faults == (lost, lost, StoreFault(At(12.0), FillDisk(9.0)))
    assert [one.target for one in found.faults] == ["store"] * 3


def test_drains_and_restarts_are_an_operators() -> None:
    found = planned(
        'at = "1s"\ntarget = "decode-0"\naction = "drain"\nfor = "7s"',
        'at = "2s"\ntarget = "prefill-0"\naction = "restart"',
    )
    assert found.plan.faults == ()
    assert found.drains == (
        PlannedDrain(at_s=1.0, worker="decode-0", away_s=7.0),
        PlannedDrain(at_s=2.0, worker="prefill-0", away_s=20.0),
    )


def test_a_stop_ends_with_the_load_or_when_somebody_resumes_it() -> None:
    stop = 'at = "60s"\ntarget = "decode-0"\naction = "stop"'
    assert planned(stop).plan.faults == (ProcessFault(At(60.0), "decode-0", Stall(40.0)),)
    for target in ("decode-0", "random", "decode"):
        resume = f'at = "72s"\ntarget = "{target}"\naction = "resume"'
        found = planned(stop, resume, after_s=1.0)
        assert found.plan.faults == (ProcessFault(At(61.0), "decode-0", Stall(12.0)),)
    nobody = planned('at = "5s"\ntarget = "random"\naction = "resume"')
    assert [one.target for one in nobody.faults] == [None]


def test_whoever_is_not_back_is_not_hit_again() -> None:
    kill = 'target = "decode-0"\naction = "kill"'
    found = planned(f'at = "1s"\n{kill}', f'at = "20s"\n{kill}', f'at = "21s"\n{kill}')
    assert [one.target for one in found.faults] == ["decode-0", None, "decode-0"]
    assert len(found.plan.faults) == 2


ACTIONS = st.sampled_from(["kill", "stop", "slow", "drain", "restart", "cut"])
ENTRIES = st.lists(
    st.tuples(ACTIONS, st.sampled_from(["random", "prefill", "decode"]), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)


@given(ENTRIES, st.integers(0, 5))
@settings(deadline=None, max_examples=40)
def test_each_phase_is_left_with_somebody(entries: list[tuple[str, str, int]], seed: int) -> None:
    """Of a fleet whose faults all choose for themselves."""
    more = {"slow": 'factor = 2\nfor = "9s"', "stop": 'for = "9s"', "drain": 'for = "9s"'}
    found = planned(
        *(
            f'at = "{at}s"\ntarget = "{target}"\naction = "{action}"\n{more.get(action, "")}'
            for action, target, at in entries
        ),
        seed=seed,
    )
    lasting = {"kill": 20.0, "stop": 9.0, "slow": 9.0, "drain": DRAIN_S + 9.0, "cut": 0.0}
    lasting["restart"] = DRAIN_S + 20.0
    away: list[tuple[float, float, str]] = []
    for one in found.faults:
        assert one.at_s is not None
        action, target, _ = entries[one.fault.entry - 1]
        if one.target is None:
            continue
        assert target in ("random", one.target.partition("-")[0])
        away.append((one.at_s, one.at_s + lasting[action], one.target))
    for begin, _, _ in away:
        gone = {name for start, end, name in away if start <= begin < end}
        assert not {"prefill-0", "prefill-1"} <= gone
        assert not {"decode-0", "decode-1"} <= gone


@given(st.integers(0, 50))
@settings(deadline=None, max_examples=10)
def test_the_same_seed_hits_the_same(seed: int) -> None:
    every = 'every = "7s"\njitter = 0.5\ntarget = "random"\naction = "kill"'
    assert planned(every, seed=seed) == planned(every, seed=seed)
