"""Queues by their recursions, for tests: who comes when, and how long each waits."""

import heapq
from collections.abc import Sequence
from functools import cache
from math import log

from antiphon.core.draws import Draws


def exponential(mean: float, count: int, *, seed: int) -> list[float]:
    """So many draws."""
    return [mean * one for one in _draws(count, seed)]


@cache
def _draws(count: int, seed: int) -> tuple[float, ...]:
    """Of mean 1: many queues are told by the same draws."""
    draws = Draws(seed)
    return tuple(-log(1 - draws.fraction(number)) for number in range(count))


def waits(gaps: Sequence[float], services: Sequence[float], servers: int = 1) -> list[float]:
    """How long each waits: first come, first served (Lindley 1952; Kiefer, Wolfowitz 1955)."""
    free_at, now = [0.0] * servers, 0.0
    found: list[float] = []
    for gap, service in zip(gaps, services, strict=True):
        now += gap
        begins = max(now, free_at[0])
        heapq.heapreplace(free_at, begins + service)
        found.append(begins - now)
    return found
