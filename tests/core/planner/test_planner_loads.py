"""Loads of every kind, against somebody who knows the load beforehand.

The seer has at each time just as many workers as closed forms give the true rate, which start at
once: nobody can serve everything for less. A planner pays for starts, for doubt and for mistakes.
"""

import random
from collections.abc import Callable
from math import cos, pi
from pathlib import Path

import pytest
from planner_kit import DECODE, PREFILL, SLO, Plant, capacity, drive, planner, rules

from antiphon.core.planner import Planner, Shape
from antiphon.types import Seconds
from antiphon.workload import read_azure

HOURS = 2.0
INTERVAL_S = 15.0
AZURE_HOURS = 0.95
TRACES = Path(__file__).parents[4] / "shared/traces"
"""Beside the project, as they are not part of it."""
SHAPE = Shape(input_tokens=1000, output_tokens=301, uncached=1000)
Rate = Callable[[Seconds], float]


def sine(period_s: float) -> Rate:
    return lambda at: 25 - 20 * cos(2 * pi * at / period_s)


def steps(*parts: tuple[float, float]) -> Rate:
    """From each time on that rate."""
    return lambda at: max((part for part in parts if part[0] <= at), default=parts[0])[1]


def spikes(at: Seconds) -> float:
    """Three times as much for two minutes, each twenty minutes."""
    return 30.0 if 600 <= at % 1200 < 720 else 10.0


def bursts(at: Seconds) -> float:
    """Another rate each two minutes, by chance: what a trace of code completion looks like."""
    return random.Random(int(at // 120)).lognormvariate(2.5, 0.5)


LOADS: dict[str, Rate] = {
    "constant": lambda _: 20.0,
    "step": steps((0, 6), (1800, 24)),
    "two steps": steps((0, 6), (1500, 15), (3000, 30), (5000, 8)),
    "sine": sine(600),
    "slow sine": sine(1700),
    "quick sine": sine(330),
    "spikes": spikes,
    "bursts": bursts,
    "drift": lambda at: 5 + at / 300,
}


def counts(rate: Rate, seed: int) -> Callable[[Seconds], float]:
    """Nearly Poisson."""
    chance = random.Random(seed)

    def count(at: Seconds) -> float:
        mean = INTERVAL_S * rate(at)
        return max(0.0, round(chance.gauss(mean, mean**0.5)))

    return count


def seer_s(rate: Rate, hours: float = HOURS) -> float:
    """Device-seconds of somebody who knows the load and waits for nobody to start."""
    one, total = capacity(), 0.0
    for place in range(round(hours * 3600 / INTERVAL_S)):
        per_s = rate(INTERVAL_S * place)
        for role in (PREFILL, DECODE):
            total += INTERVAL_S * max(1, one.workers(role, per_s, SHAPE, SLO, 100))
    return total


def steered(rate: Rate, one: Planner, seed: int = 1) -> Plant:
    plant = Plant(rules(budget=30))
    drive(plant, one, counts(rate, seed), hours=HOURS)
    return plant


@pytest.mark.parametrize(
    ("name", "served", "cost"),
    [
        ("constant", 0.96, 1.05),
        ("step", 0.96, 1.2),
        ("two steps", 0.93, 1.25),
        ("sine", 0.97, 1.4),
        ("slow sine", 0.98, 1.25),
        ("quick sine", 0.96, 1.6),
        ("spikes", 0.81, 1.4),
        ("bursts", 0.79, 1.6),
        ("drift", 0.98, 1.1),
    ],
)
def test_a_load_is_served_at_a_cost_near_that_of_who_knows_it(
    name: str, served: float, cost: float
) -> None:
    """From one worker of each role on, and without having seen anything."""
    rate = LOADS[name]
    plant = steered(rate, planner(rules(budget=30)))
    assert plant.served >= served
    assert plant.device_s <= cost * seer_s(rate)


@pytest.mark.parametrize(
    ("trace", "times", "served", "cost"), [("code", 2, 0.58, 2.3), ("conv", 4, 0.95, 1.3)]
)
def test_a_public_trace_is_served(trace: str, times: int, served: float, cost: float) -> None:
    """So many times as much as in the trace, so that there is a fleet to steer."""
    file = TRACES / f"AzureLLMInferenceTrace_{trace}.csv"
    if not file.exists():
        pytest.skip(f"the public trace {file} is not there")
    counted = [0.0] * round(AZURE_HOURS * 3600 / INTERVAL_S + 1)
    for row in read_azure(file):
        if (place := int(row.at_s / INTERVAL_S)) < len(counted):
            counted[place] += times

    def rate(at: Seconds) -> float:
        near = counted[max(0, int(at / INTERVAL_S) - 2) : int(at / INTERVAL_S) + 3]
        return sum(near) / len(near) / INTERVAL_S

    plant = Plant(rules(budget=60))
    one = planner(rules(budget=60))
    drive(plant, one, lambda at: counted[int(at / INTERVAL_S)], hours=AZURE_HOURS)
    assert plant.served >= served
    assert plant.device_s <= cost * seer_s(rate, AZURE_HOURS)


def test_who_knows_the_season_serves_more_than_who_does_not() -> None:
    """The control: the last value alone, which a rise is always ahead of."""
    rate = sine(600)
    history = [rate(INTERVAL_S * n) for n in range(80)]
    kinds = {PREFILL: capacity(), DECODE: capacity()}
    told = steered(rate, Planner(rules(budget=30), kinds, history=history))
    new = steered(rate, planner(rules(budget=30)))
    assert told.served > new.served
