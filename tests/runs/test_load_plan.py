"""A plan of a load: rates of calls, bounds, and what is told of it."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.runs import LoadPlan
from antiphon.types import Slo
from antiphon.workload import OwnTimes, Poisson, calls_per_session, parse_workload

SLOS = (("", Slo(ttft_s=0.5, tpot_s=0.05)),)
WORKLOADS = st.sampled_from(["chat", "multi-turn", "agents"])


def plan_of(workload: str, rate_per_s: float, duration_s: float, seed: int = 0) -> LoadPlan:
    parsed = parse_workload(workload)
    calls = calls_per_session(parsed, seed)
    plan = LoadPlan(
        workload=parsed,
        arrivals=Poisson(1.0),
        calls_per_session=calls,
        duration_s=duration_s,
        slos=SLOS,
        seed=seed,
    )
    return plan.at_rate(rate_per_s)


@given(WORKLOADS, st.floats(0.1, 50.0))
@settings(deadline=None, max_examples=20)
def test_a_rate_is_one_of_calls(workload: str, rate_per_s: float) -> None:
    assert plan_of(workload, rate_per_s, 10.0).rate_per_s == pytest.approx(rate_per_s)


@pytest.mark.parametrize("workload", ["chat", "multi-turn", "agents"])
def test_so_many_calls_a_second_are_planned(workload: str) -> None:
    """2,000 expected; sessions are drawn, so the number varies by a few percent."""
    plan = plan_of(workload, 20.0, 100.0)
    calls = sum(len(one.session.turns) for one in plan.sessions())
    assert calls == pytest.approx(2000, rel=0.15)


@given(WORKLOADS, st.integers(1, 60), st.integers(0, 5))
@settings(deadline=None, max_examples=30)
def test_no_session_begins_once_enough_calls_are_planned(
    workload: str, most: int, seed: int
) -> None:
    plan = replace(plan_of(workload, 20.0, 1000.0, seed), most_calls=most)
    sessions = list(plan.sessions())
    calls = [len(one.session.turns) for one in sessions]
    assert sum(calls[:-1]) < most <= sum(calls)
    assert sessions == list(plan.sessions())


@given(st.floats(0.5, 30.0), st.integers(0, 3))
@settings(deadline=None, max_examples=20)
def test_sessions_begin_in_order_and_within_the_load(duration_s: float, seed: int) -> None:
    times = [one.at_s for one in plan_of("chat", 5.0, duration_s, seed).sessions()]
    assert all(0 <= at_s < duration_s for at_s in times)
    assert all(earlier <= later for earlier, later in pairwise(times))


def test_the_span_is_known_beforehand_where_it_can_be() -> None:
    plan = plan_of("chat", 4.0, 60.0)
    assert plan.span_s == 60.0
    assert replace(plan, most_calls=20).span_s == pytest.approx(5.0)
    assert replace(plan, most_calls=10_000).span_s == 60.0
    own = replace(plan, arrivals=OwnTimes(), most_calls=20)
    assert (own.rate_per_s, own.span_s) == (None, 60.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(UsageError):
        plan_of("chat", rate, 10.0)


def test_what_is_told_of_it() -> None:
    plan = replace(plan_of("agents", 2.0, 30.0), warmup_s=3.0, devices=2, notes=("careful",))
    run = plan.begun("a fleet", "m", version="1", command="antiphon sim …")
    assert run.title == "m at a fleet"
    assert replace(plan, title="mine").begun("a fleet", "m", version="").title == "mine"
    assert (run.target, run.model, run.devices) == ("a fleet", "m", 2)
    assert (run.duration_s, run.warmup_s, run.slos) == (30.0, 3.0, SLOS)
    assert run.rate_per_s == pytest.approx(2.0)
    assert run.workload == plan.workload.description
    assert (run.started_at, run.notes) == ("", ("careful",))
