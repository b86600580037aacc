"""Runs of scenarios: what their users saw, whatever went wrong meanwhile."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from antiphon.core.goodput import SearchRules, StopReason
from antiphon.report import open_run, open_search
from antiphon.runs import Measured
from antiphon.sim.fleet import (
    Scenario,
    Stopped,
    keep,
    load_plan,
    parse_scenario,
    simulate,
    simulated_search,
)
from antiphon.types import CallError

TRACE = Path(__file__).parents[2] / "workload/excerpts/mooncake_conversation.jsonl"
SPLIT = 'model = "llama-3-8b"\nduration = "20s"\nstart = "3s"\n' + "".join(
    f'[[pool]]\nrole = "{role}"\nworkers = 2\ndevice = "h100"\n' for role in ("prefill", "decode")
)
LOAD = '[load]\nworkload = "chat:input=50-300,output=20-60"\nrate = 8\n'


def scenario_of(text: str, seed: int = 1) -> Scenario:
    return parse_scenario(text, Path("it.toml"), seed)


def run(text: str, seed: int = 1) -> Measured:
    scenario = scenario_of(text, seed)
    return simulate(scenario, load_plan(scenario, seed))


@cache
def calm() -> Measured:
    """The run that nothing disturbs."""
    return run(SPLIT + LOAD)


def test_every_call_of_the_plan_ends_once_and_as_long_as_it_was_planned() -> None:
    scenario = scenario_of(SPLIT + LOAD)
    plan = load_plan(scenario, 1)
    measured = simulate(scenario, plan)
    planned = [one.session.turns[0].ask.max_tokens for one in plan.sessions()]
    assert sorted(one.number for one in measured.records) == list(range(len(planned)))
    for one in measured.records:
        assert one.error is None
        assert one.output_tokens == len(one.token_at_s) == planned[one.number]
    assert measured.run.devices == 4
    assert measured.run.started_at == ""
    assert measured.whole


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    first, again, other = calm(), run(SPLIT + LOAD), run(SPLIT + LOAD, seed=2)
    assert first == again
    assert first.records != other.records


FAULTS = {
    "kill": "",
    "stop": 'for = "6s"',
    "slow": 'factor = 5\nfor = "6s"',
    "cut": "",
    "drain": 'for = "2s"',
    "restart": "",
}


@pytest.mark.parametrize("action", FAULTS)
@pytest.mark.parametrize("target", ["prefill-0", "decode-0"])
def test_no_call_is_lost_to_a_fault(action: str, target: str) -> None:
    fault = f'[[fault]]\nat = "5s"\ntarget = "{target}"\naction = "{action}"\n{FAULTS[action]}\n'
    measured = run(SPLIT + LOAD + fault)
    assert len(measured.records) == len(calm().records)
    assert all(one.error is None for one in measured.records)
    if target.startswith("decode"):  # prompts are as soon computed by the other one
        assert measured.records != calm().records, "it had no effect"
    said, in_all = measured.run.notes
    assert said.startswith(f"Fault 1: {action} {target} at 5.0 s; ")
    assert "no effect" not in said
    assert in_all.startswith("All faults: ")
    costs = measured.summary.faults
    assert costs is not None
    [cost] = costs.faults
    assert (cost.entry, cost.kind, cost.target, cost.at_s) == (1, action, target, 5.0)
    assert cost.happened
    assert cost.lost_calls == pytest.approx(costs.lost_calls)
    assert calm().summary.faults is None
    if (action, target) == ("kill", "decode-0"):
        assert costs.tried_again > 0
        assert costs.wasted_tokens > costs.tried_again, "each of them had a prompt"


def test_whoever_was_drained_comes_back_and_serves() -> None:
    faults = "".join(
        f'[[fault]]\nat = "{at}s"\ntarget = "decode-{number}"\naction = "{action}"\n{more}\n'
        for at, number, action, more in (
            (2, 0, "drain", 'for = "2s"'),
            (12, 1, "stop", 'for = "60s"'),
        )
    )
    measured = run(SPLIT + LOAD + faults)
    late = [one for one in measured.records if one.due_at_s > 15]
    assert late
    assert all(one.error is None for one in late)
    assert max(one.ended_at_s for one in late) < 30


def test_a_gateway_that_dies_cuts_its_streams_short_and_takes_calls_again() -> None:
    fault = '[[fault]]\nat = "10s"\ntarget = "gateway"\naction = "kill"\n'
    measured = run(SPLIT + LOAD + fault)
    errors = {one.error for one in measured.records}
    assert errors <= {None, CallError.CUT_SHORT, CallError.UNREACHABLE}
    assert any(one.error is None for one in measured.records if one.due_at_s > 12)
    assert len(measured.records) == len(calm().records)


def test_a_fault_that_waits_for_an_event() -> None:
    fault = '[[fault]]\nafter-event = "offer"\noccurrence = 9\ntarget = "decode"\naction = "kill"\n'
    measured = run(SPLIT + LOAD + fault)
    assert all(one.error is None for one in measured.records)
    assert "when its event comes" in measured.run.notes[0]
    assert measured.summary.faults is not None
    [cost] = measured.summary.faults.faults
    assert (cost.at_s, cost.happened, cost.lost_calls) == (None, None, None)


def test_who_waits_too_long_is_a_call_that_failed() -> None:
    """Overloaded so much that answers are not there when the run is given up."""
    slow = 'model = "opt-175b"\nduration = "10s"\n[[pool]]\ndevice = "cpu-socket"\n'
    measured = run(slow + '[load]\nworkload = "fixed:input=500,output=800"\nrate = 3\n')
    numbers = [one.number for one in measured.records]
    assert sorted(numbers) == list(range(len(numbers)))
    late = [one for one in measured.records if one.error is CallError.TIMEOUT]
    assert late
    assert measured.summary.overall.attainment.met == 0


def test_patience_ends_a_call() -> None:
    measured = run(SPLIT + LOAD + 'patience = "50ms"\n')
    errors = {one.error for one in measured.records}
    assert CallError.TIMEOUT in errors
    assert all(
        one.ended_at_s - one.due_at_s < 0.1
        for one in measured.records
        if one.error is CallError.TIMEOUT
    )


def test_a_trace_in_its_full_size_has_its_own_lengths_and_times() -> None:
    load = f'[load]\nworkload = "trace:{TRACE}"\ntoken-times = "ends"\nslo = ["ttft=9s"]\n'
    alone = run(SPLIT.replace("20s", "1min") + load)
    prompts = [one.prompt_tokens for one in sorted(alone.records, key=lambda one: one.number)]
    scenario = scenario_of(SPLIT + load)
    rows = list(scenario.users.workload.rows(1))  # type: ignore[attr-defined]
    assert prompts == [row.input_tokens for row in rows][: len(prompts)]
    assert all(len(one.token_at_s) <= 2 for one in alone.records)
    assert "first and the last token" in alone.run.notes[0]
    twice = run(SPLIT.replace("20s", "1min") + load + "copies = 2\n")
    assert len(twice.records) > 1.5 * len(alone.records)
    assert "2 times" in twice.run.workload
    assert rate_of(load + "rate = 1.5\n") == pytest.approx(1.5, rel=0.1)
    assert rate_of(load + 'rate = 1.5\narrivals = "poisson"\n') == pytest.approx(1.5, rel=0.6)


def test_gaps_between_tokens_are_not_made_up_of_the_ends_of_answers() -> None:
    every, ends = calm(), run(SPLIT + LOAD + 'token-times = "ends"\n')
    assert every.summary.itl is not None
    assert ends.summary.itl is None
    assert (ends.summary.ttft, ends.summary.tpot) == (every.summary.ttft, every.summary.tpot)


def rate_of(load: str) -> float:
    """Of all rows of the trace."""
    records = run(SPLIT.replace("20s", "10min") + load).records
    assert len(records) >= 24
    return len(records) / max(one.due_at_s for one in records)


def test_a_run_that_is_stopped_has_what_had_ended(tmp_path: Path) -> None:
    scenario = scenario_of(SPLIT + LOAD)

    def look(now: float, line: str) -> None:
        assert "sent" in line or "to come" in line
        if now >= 10:
            raise Stopped

    measured = simulate(scenario, load_plan(scenario, 1), look=look)
    assert not measured.whole
    assert measured.run.duration_s == pytest.approx(10, abs=0.1)
    assert "Interrupted after 10.0 of 20 s" in measured.run.notes[0]
    whole = calm().records
    assert set(measured.records) < set(whole)
    keep(measured, tmp_path / "run")
    assert not open_run(tmp_path / "run").whole


def test_goodput_is_found_by_runs_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Measured, "draw", lambda _self, _folder: None)
    text = 'model = "llama-3-8b"\nduration = "11s"\nwarmup = "1s"\n[[pool]]\ndevice = "l40s"\n'
    load = '[load]\nworkload = "fixed:input=2000,output=4"\nslo = ["ttft=800ms,tpot=1s"]\n'
    scenario = scenario_of(text + load)
    plan = load_plan(scenario, 1)
    rules = SearchRules(
        tolerance=0.3, start_per_s=2.0, run_s=10.0, longest_run_s=20.0, least_calls=20
    )
    found, whole = simulated_search(scenario, plan, rules, folder=tmp_path)
    assert whole
    assert found.goodput is not None
    assert found.goodput.stopped is StopReason.FOUND
    capacity_per_s = 1 / 0.35
    assert 0.2 * capacity_per_s < found.goodput.rate_per_s < 3 * capacity_per_s
    assert open_search(tmp_path) == found
    assert len(found.probes) == sum(probe.runs for probe in found.goodput.probes)
    for probe in found.probes:
        assert open_run(tmp_path / probe).run.seed != plan.seed

    def look(_now: float, line: str) -> None:
        if line.startswith("run 2"):
            raise Stopped

    part, whole = simulated_search(scenario, plan, rules, look=look)
    assert not whole
    assert part.goodput is not None
    assert part.goodput.stopped is StopReason.UNFINISHED


def test_warm_ups_and_rates_are_the_plans() -> None:
    scenario = scenario_of(SPLIT + LOAD)
    plan = replace(load_plan(scenario, 1).at_rate(2.0), duration_s=10.0, warmup_s=5.0)
    measured = simulate(scenario, plan)
    assert measured.run.rate_per_s == pytest.approx(2.0)
    assert len(measured.records) < 40
    assert measured.summary.warmup_calls == sum(one.due_at_s < 5 for one in measured.records)
