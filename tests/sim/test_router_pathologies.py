"""What routers are known to do wrong, each on a small fleet in virtual time.

The law of each: the default keeps the busiest worker at most 1.3 times as busy as the mean, and
first tokens come no later than with the best of the baselines: by no more than 1 %, and 3 ms, of
the 20 that the router takes for equal where the target is 1 s.
"""

from statistics import fmean

import pytest
from routed_fleet import POLICIES, Outcome, Plant, means
from router_loads import (
    COLD_PROMPTS,
    EQUAL_S,
    EQUAL_WORKERS,
    HERD,
    HOT_PREFIX,
    IDLE_DECODE,
    MOST_UNEVEN,
    SLOW_WORKER,
    SMALL_CACHES,
    STUCK_WORKER,
    Load,
    Scenario,
    together_at_once,
)


def no_later(plant: Plant, *loads: Load) -> dict[str, float]:
    """Means by policy, the default's no later than any other's."""
    found = means(plant, loads)
    assert found["slo"] <= 1.01 * min(found.values()) + EQUAL_S, found
    return found


def evenness(scenario: Scenario) -> Outcome:
    """The default's run, its busiest worker at most 1.3 times as busy as the mean."""
    outcome = scenario.plant.play("slo", scenario.load(1))
    assert outcome.unevenness(scenario.evenly) <= MOST_UNEVEN, outcome.busy_s
    return outcome


def all_well(scenario: Scenario) -> tuple[dict[str, float], Outcome]:
    """Both laws, of the first seed."""
    return no_later(scenario.plant, scenario.load(1)), evenness(scenario)


def test_a_hot_prefix_does_not_fill_one_worker() -> None:
    """dynamo 737: a system prompt that all share sent all to one of eight."""
    found, _ = all_well(HOT_PREFIX)
    assert found["prefix-gated"] > 3 * found["slo"], "the negative control: gates herd"


def test_beginnings_that_come_again_are_computed_once_and_all_work() -> None:
    """sglang 32195, 21199: balance throws reuse away, or reuse balance."""
    plant = SMALL_CACHES.plant
    loads = [SMALL_CACHES.load(seed) for seed in range(1, 9)]
    ours, followers, others = (
        [plant.play(policy, load) for load in loads]
        for policy in ("slo", "prefix-gated", "overlap-cost")
    )
    mean_s, best_s, other_s = (
        fmean(one.mean_s for one in some) for some in (ours, followers, others)
    )
    assert mean_s <= 1.01 * best_s + EQUAL_S, "who always follows is good here, and herds above"
    assert mean_s < 0.8 * other_s
    assert min(one.hit_share for one in ours) > 0.7
    assert fmean(one.unevenness() for one in ours) <= 1.35, "of so few that are hot by chance"


def test_no_decode_worker_stays_idle_under_single_turns() -> None:
    """dynamo 7836: two of five decode workers idle, since nothing matched anywhere."""
    all_well(IDLE_DECODE)


def test_single_turns_keep_all_workers_busy() -> None:
    """llm-d-router 346: cold prompts are spread."""
    all_well(COLD_PROMPTS)


def test_a_burst_between_two_reports_is_spread() -> None:
    """llm-d-router 298, dynamo 589: loads are a second old, and sixteen come at once."""
    no_later(HERD.plant, HERD.load(1), HERD.load(2))
    evenness(HERD)


def test_a_slow_worker_gets_less_not_more() -> None:
    """sglang 14305, the death spiral: who does nothing has the shortest list of anything."""
    found, outcome = all_well(SLOW_WORKER)
    assert found["round-robin"] > 3 * found["slo"], "the negative control: turns don't see it"
    slow = next(busy for id, busy in outcome.busy_s.items() if id.startswith("slow"))
    others = [busy for id, busy in outcome.busy_s.items() if not id.startswith("slow")]
    assert slow / 4 < 0.6 * min(others), "it did less than any other"


def test_a_stuck_worker_does_not_look_idle() -> None:
    """It stands still for two seconds, and is not given up: what it has is not over."""
    all_well(STUCK_WORKER)


@pytest.mark.parametrize("together", [1, 8])
def test_equal_workers_take_turns(together: int) -> None:
    """Infera 103, llm-d-router 2515: all loads are 0 each time, and ties went to the first."""
    load, plant = together_at_once(1, together), EQUAL_WORKERS.plant
    no_later(plant, load)
    assert plant.play("slo", load).unevenness() <= 1.01
    assert plant.play("random", load).unevenness() > 1.3, "the negative control"


def test_the_baselines_are_those_that_config_names() -> None:
    assert set(POLICIES) == {
        "random",
        "round-robin",
        "least-loaded",
        "prefix-gated",
        "overlap-cost",
        "slo",
    }
