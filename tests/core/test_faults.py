"""Fault plans: pure functions of their seed, within their mix."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.draws import Draws
from antiphon.core.faults import (
    COPIES,
    DISHONEST,
    HONEST,
    At,
    CopyFault,
    Crash,
    FaultPlan,
    FillDisk,
    Kind,
    LinkFault,
    MessageFault,
    Mix,
    Partition,
    Party,
    ProcessFault,
    Stall,
    StoreFault,
    When,
    action_name,
    plan,
)
from antiphon.errors import BugError

NODES = ("prefill-0", "prefill-1", "decode-0")
seeds = st.integers(-(2**63), 2**63)
mixes = st.builds(
    Mix,
    nodes=st.sampled_from([NODES, NODES[:2]]),
    spared=st.sampled_from([(), ("gateway",), ("gateway", "decode-1")]),
    kinds=st.sampled_from([HONEST, tuple(Kind), DISHONEST, (Kind.CRASH,), (Kind.STALL,)]),
    faults=st.integers(0, 9),
    duration_s=st.sampled_from([0.5, 60.0]),
    longest_s=st.sampled_from([0.1, 10.0]),
    restarts=st.booleans(),
    by_messages=st.booleans(),
)


@settings(deadline=None, max_examples=300)
@given(seeds, mixes)
def test_a_plan_keeps_to_its_mix(seed: int, mix: Mix) -> None:
    drawn = plan(seed, mix)
    assert drawn == plan(seed, mix)
    assert (1 if mix.faults else 0) <= len(drawn.faults) <= mix.faults
    assert drawn.spared == mix.spared
    for fault in drawn.faults:
        assert Kind(action_name(fault.action)) in mix.kinds
        match fault.trigger:
            case At(seconds):
                assert 0 <= seconds <= mix.duration_s
            case When(_, occurrence):
                assert occurrence >= 1
                assert mix.by_messages or isinstance(fault, MessageFault | CopyFault)
        match fault:
            case ProcessFault(trigger, Party(), _):
                assert isinstance(trigger, When)
            case ProcessFault(whom=node):
                assert node in mix.nodes
            case LinkFault(trigger, None, _):
                assert isinstance(trigger, When)
            case LinkFault(link=link):
                assert link is not None
                assert set(link) <= {*mix.nodes, *mix.spared}
                assert link[0] != link[1]
            case CopyFault(When(boundary, _), _):
                assert boundary in COPIES
                assert boundary in mix.boundaries
            case MessageFault() | StoreFault():
                pass
        match fault.action:
            case Crash(restart_after_s):
                assert (restart_after_s is not None) == mix.restarts
            case Stall(for_s) | Partition(for_s) | FillDisk(for_s):
                assert 0 < for_s <= mix.longest_s
            case _:
                pass


def test_every_kind_is_drawn() -> None:
    mix = Mix(nodes=NODES, spared=("gateway",), kinds=tuple(Kind), faults=9)
    kinds = Counter(
        type(fault.action).__name__ for seed in range(200) for fault in plan(seed, mix).faults
    )
    assert len(kinds) == len(Kind)
    assert min(kinds.values()) > max(kinds.values()) / 3


def test_a_plan_is_the_same_in_every_process() -> None:
    mix = Mix(nodes=NODES, spared=("gateway",), kinds=tuple(Kind), faults=9)
    here = repr([plan(seed, mix) for seed in range(20)])
    code = (
        "from antiphon.core.faults import *\n"
        f"mix = Mix(nodes={NODES!r}, spared=('gateway',), kinds=tuple(Kind), faults=9)\n"
        "print([plan(seed, mix) for seed in range(20)], end='')"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout == here


def test_draws_depend_on_their_purpose_alone() -> None:
    draws = Draws(7)
    first = draws.bits("a", 1)
    draws.bits("something else")
    assert draws.bits("a", 1) == first != draws.bits("a", 2)
    assert draws.bits("a", 1) != draws.bits("a1")
    assert Draws(8).bits("a", 1) != first
    assert all(0 <= draws.fraction(n) < 1 and draws.below(3, n) in range(3) for n in range(100))


@pytest.mark.parametrize(
    "mix",
    [
        Mix(nodes=()),
        Mix(nodes=NODES, kinds=()),
        Mix(nodes=NODES[:1], kinds=(Kind.CRASH, Kind.CUT)),
    ],
)
def test_a_mix_that_can_hit_nobody_is_refused(mix: Mix) -> None:
    with pytest.raises(BugError, match="can hit"):
        plan(1, mix)


def test_one_process_can_crash() -> None:
    assert plan(1, Mix(nodes=NODES[:1], kinds=(Kind.CRASH,))).faults


def test_no_faults_is_a_plan() -> None:
    assert plan(1, Mix(nodes=NODES, faults=0)) == FaultPlan(1)
