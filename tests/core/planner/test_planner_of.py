"""One planner of a configuration, in a gateway and in a replay."""

import io
from dataclasses import fields

import pytest

from antiphon.core.config import build
from antiphon.core.planner import (
    PLANNER,
    PLANNER_METHODS,
    Observation,
    Planner,
    PlannerRules,
    PoolSeen,
    planner_of,
    rules_of,
)
from antiphon.core.recorded_run import Setup, fresh_machines
from antiphon.core.recorder import recorded, replay
from antiphon.errors import UsageError
from antiphon.perf import read_times
from antiphon.testing.strategies import MODEL
from antiphon.types import PlannerConfig, Role, Slo
from antiphon.wire import DecisionLogWriter, read_decision_log

CONFIG = build(
    {
        "cluster": {"prefill": 1, "decode": 1},
        "planner": {"mode": "act", "budget": 6, "interval_s": 1.0, "ready_s": 3.0, "clear_s": 2.0},
        "router": {"ttft_s": 0.5, "tpot_s": 0.05},
    }
)
TIMES = read_times("", step_tokens=CONFIG.scheduler.max_batched_tokens)


def seen(at: float) -> Observation:
    queue = 40.0 if 5 < at < 12 else 0.0
    pools = (
        PoolSeen(role=Role.PREFILL, ready=1, held=queue),
        PoolSeen(role=Role.DECODE, ready=2, running=100 * queue),
    )
    return Observation(
        at=at, seconds=1.0, requests=queue, input_tokens=300.0, output_tokens=80.0, pools=pools
    )


def test_each_key_is_a_rule_with_the_rules_default_and_each_rule_is_a_key() -> None:
    rules = {field.name: field.default for field in fields(PlannerRules)}
    keys = {field.name: field.default for field in fields(PlannerConfig)}
    assert keys.keys() - rules.keys() == {"mode", "drain_s"}
    assert rules.keys() - keys.keys() == {"slo", "roles"}, "the router's targets, the cluster's"
    for name in keys.keys() & rules.keys() - {"budget"}:
        assert keys[name] == rules[name], name


def test_rules_are_those_of_the_configuration() -> None:
    rules = rules_of(CONFIG)
    assert rules.slo == Slo(ttft_s=0.5, tpot_s=0.05)
    assert rules.roles == (Role.PREFILL, Role.DECODE)
    assert (rules.budget, rules.interval_s, rules.ready_s) == (6, 1.0, 3.0)
    assert rules_of(build({"planner": {"mode": "advise"}})).roles == (Role.MIXED,)
    assert rules_of(build({"cluster": {"mixed": 3}, "planner": {"mode": "act"}})).budget == 3


def test_a_replay_of_a_planners_log_decides_the_same_and_another_planner_does_not() -> None:
    file = io.BytesIO()
    write = DecisionLogWriter(file)
    write.begin(
        Setup(program="0", config=CONFIG, pages=0, model=MODEL, max_model_len=64, worker=None)
    )
    planner = planner_of(CONFIG, TIMES.phases, MODEL.kv_bytes_per_token)
    live = recorded(PLANNER, planner, PLANNER_METHODS, write)
    decisions = [live.decide(seen(float(at))) for at in range(20)]
    assert sum(bool(decision.moves) for decision in decisions) > 1, "it has decided something"
    lines = file.getvalue().splitlines(keepends=True)
    run = read_decision_log(lines)
    machines = fresh_machines(run.setup, TIMES)
    assert isinstance(machines[PLANNER], Planner)
    assert list(replay(run.entries, machines)) == []
    other = planner_of(
        build({"cluster": {"prefill": 1, "decode": 1}, "planner": {"mode": "act", "budget": 2}}),
        TIMES.phases,
        MODEL.kv_bytes_per_token,
    )
    found = list(replay(read_decision_log(lines).entries, {PLANNER: other}))
    assert found
    assert found[0].method == "decide"


@pytest.mark.parametrize("broken", [b'"target":', b'"fields":{', b'"kind":"Decision"'])
def test_a_log_with_a_broken_decision_is_an_error_of_its_line(broken: bytes) -> None:
    file = io.BytesIO()
    write = DecisionLogWriter(file)
    write.begin(
        Setup(program="0", config=CONFIG, pages=0, model=MODEL, max_model_len=64, worker=None)
    )
    planner = planner_of(CONFIG, TIMES.phases, MODEL.kv_bytes_per_token)
    recorded(PLANNER, planner, PLANNER_METHODS, write).decide(seen(1.0))
    spoilt = {
        b'"target":': b'"other":',
        b'"fields":{': b'"fields":{"more":1,',
        b'"kind":"Decision"': b'"kind":"Observation"',
    }[broken]
    assert file.getvalue().count(broken) == 1
    lines = file.getvalue().replace(broken, spoilt).splitlines(keepends=True)
    with pytest.raises(UsageError, match="line 2"):
        list(read_decision_log(lines).entries)


def test_without_a_planner_there_is_none_to_replay() -> None:
    setup = Setup(
        program="0", config=build({}), pages=0, model=MODEL, max_model_len=64, worker=None
    )
    assert PLANNER not in fresh_machines(setup, TIMES)
