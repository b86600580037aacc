"""Runs that are ended early: the verdict is what it would have been."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placing_kit import FAST, SLOW, case

from antiphon.core.goodput import GOAL, Attainment, judge
from antiphon.core.placement import Candidate, Colocated, Split
from antiphon.sim.fleet import Fleet, TokenSession, TokenTurn
from antiphon.sim.placing import PlacementCase
from antiphon.sim.placing.lost_run import is_lost, most_calls
from antiphon.types import CallRecord

MIXED = Colocated(instance=SLOW.instance, workers=2, step_tokens=512)
SPLIT = Split(
    prefill=FAST.instance,
    prefill_workers=1,
    decode=SLOW.instance,
    decode_workers=1,
    step_tokens=512,
)


def counted(met: list[bool]) -> Attainment:
    return Attainment(calls=len(met), met=sum(met), ttft_met=sum(met), tpot_met=sum(met))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 5))
def test_what_is_lost_stays_lost_and_what_fails_is_lost_in_the_end(
    met: list[bool], uncertain: int
) -> None:
    """`uncertain`: calls that might have counted, and did not."""
    most = len(met) + uncertain
    passes = sum(met) / len(met) >= GOAL
    lost = [is_lost(counted(met[:known]), most) for known in range(len(met) + 1)]
    assert lost == sorted(lost)
    assert not (passes and any(lost))
    assert uncertain or lost[-1] == (not passes)


def test_calls_that_follow_others_may_count_whenever_their_session_began() -> None:
    turns = (TokenTurn((), 1), TokenTurn((), 1, after=(0,)), TokenTurn((), 1, pause_s=6.0))
    sessions = [TokenSession(at_s, number, turns) for number, at_s in enumerate((0.0, 5.0, 10.0))]
    assert most_calls(sessions, 10.0) == 1 + 2 + 3
    assert most_calls(sessions, 0.0) == 9


def whole(of: PlacementCase, candidate: Candidate, rate: float) -> Attainment:
    duration_s = of.warmup_s + max(of.run_s, of.effort.least_calls / rate)
    return of.judge(of.records(candidate, rate, 0, duration_s), of.slo, of.warmup_s)


@pytest.mark.parametrize("rate", [2.0, 5.0, 7.0, 8.0, 12.0])
@pytest.mark.parametrize("candidate", [MIXED, SPLIT], ids=lambda one: one.text)
def test_an_early_end_changes_no_verdict(candidate: Candidate, rate: float) -> None:
    of = case()
    found, expected = of.holds(candidate, 0, rate), whole(of, candidate, rate)
    assert (found.both().value < GOAL) == (expected.both().value < GOAL)
    if expected.both().value >= GOAL:
        assert found == expected


def test_a_hopeless_run_ends_early() -> None:
    of = case(calls=400)
    found, expected = of.holds(MIXED, 0, 30.0), whole(of, MIXED, 30.0)
    assert found.both().value < GOAL
    assert found.calls < 0.8 * expected.calls


def test_who_is_late_while_it_waits_is_late_in_the_end() -> None:
    of, records = case(), list[CallRecord]()
    sessions = of.users.sessions(15.0, 0, 12.0)
    fleet = Fleet(of.fleet(MIXED), sessions, of.rules, records.append)
    late = set[str]()

    def look(_now: float) -> None:
        for one in fleet.users.late(of.slo.ttft_s):
            assert not judge(one, of.slo).ttft_met
            assert judge(one, of.slo).tpot_met
            late.add(one.request_id)

    fleet.run(on_progress=look)
    verdicts = {one.request_id: judge(one, of.slo) for one in records}
    assert late
    assert not any(verdicts[id].ttft_met for id in late)
