"""Calls that are hard to route, and what is asked of whoever routes them: for tests, and for
`benchmarks/pathologies.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

from routed_fleet import Call, Plant, own, poisson

from antiphon.core.faults import At, ProcessFault, Stall
from antiphon.types import Role

MOST_UNEVEN = 1.3
"""So many times as busy as the mean the busiest worker may be."""
EQUAL_S = 0.003
"""Of means to the first token."""
Load = tuple[Call, ...]


@cache
def hot_prefix(seed: int) -> Load:
    """Everybody's prompt begins alike; two thirds of what eight workers can do."""
    begin = own(Random(99), 1024)
    return tuple(
        Call(at, (*begin, *own(draw, draw.randint(20, 400))))
        for at, draw in poisson(seed, 75.0, 400)
    )


def conversations(seed: int) -> Load:
    """Forty beginnings, each asked for now and then, on workers that can't keep all of them."""
    begins = [own(Random(1000 + number), 1024) for number in range(40)]
    return tuple(
        Call(at, (*begins[draw.randrange(40)], *own(draw, draw.randint(20, 180))))
        for at, draw in poisson(seed, 30.0, 240)
    )


@cache
def single_turns(seed: int, rate: float, number: int) -> Load:
    """Nothing in common."""
    return tuple(
        Call(at, own(draw, draw.randint(64, 1500)), 32) for at, draw in poisson(seed, rate, number)
    )


@cache
def bursts(seed: int) -> Load:
    """Sixteen at once, every 0.6 s, of three lengths."""
    return tuple(
        Call(burst * 0.6 + number * 1e-4, own(draw, draw.choice((100, 300, 1200))))
        for burst in range(12)
        for number, (_, draw) in enumerate(poisson(seed * 100 + burst, 1.0, 16))
    )


@cache
def together_at_once(seed: int, together: int) -> Load:
    """So many at once, equal ones, every half a second."""
    return tuple(
        Call(number // together * 0.5, own(draw, 200))
        for number, (_, draw) in enumerate(poisson(seed, 1.0, 64))
    )


@dataclass(frozen=True)
class Scenario:
    """Who works there, and the load of a seed. `evenly`: the workers whose names begin so are to be
    equally busy."""

    name: str
    plant: Plant
    load: Callable[[int], Load]
    evenly: str = ""


HOT_PREFIX = Scenario("hot prefix on one worker", Plant(), hot_prefix)
SMALL_CACHES = Scenario("hot prefixes, small caches", Plant(kv_tokens=16_384), conversations)
IDLE_DECODE = Scenario(
    "idle decode workers",
    Plant(roles=((Role.PREFILL, 3), (Role.DECODE, 5))),
    lambda seed: single_turns(seed, 16.0, 120),
    evenly="decode",
)
COLD_PROMPTS = Scenario("cold prompts", Plant(), lambda seed: single_turns(seed, 36.0, 160))
HERD = Scenario("herd between two reports", Plant(heartbeat_s=1.0), bursts)
EQUAL_WORKERS = Scenario(
    "equal workers", Plant(heartbeat_s=1.0), lambda seed: together_at_once(seed, 8)
)
SLOW_WORKER = Scenario(
    "death spiral: a slow worker", Plant(slow=4.0), lambda seed: single_turns(seed, 24.0, 300)
)
STUCK_WORKER = Scenario(
    "stale load: a worker stands still",
    Plant(faults=(ProcessFault(At(3.0), "mixed-0", Stall(2.0)),)),
    lambda seed: single_turns(seed, 24.0, 160),
)
SCENARIOS = (
    HOT_PREFIX,
    SMALL_CACHES,
    IDLE_DECODE,
    COLD_PROMPTS,
    HERD,
    EQUAL_WORKERS,
    SLOW_WORKER,
    STUCK_WORKER,
)
