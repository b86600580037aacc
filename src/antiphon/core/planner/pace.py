"""How many times as long work takes as a device's times say, learned while it is done.

A profile may be of another machine, and a roofline is an estimate: without this, a planner sizes
its fleet by what it was told and not by what it sees.
"""

from math import isfinite

from antiphon.types import Role, Seconds

from .capacity import Capacity, Shape
from .observation import PoolSeen

_WEIGHT = 0.2
"""Of the newest interval."""
_FURTHEST = 4.0
"""One measurement says no more than so many times as slow, or as quick."""
_LEAST_STEPS = 20
"""Fewer passes say nothing."""


class Pace:
    """Of the workers of one role. 1: as their times say."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self.slower = 1.0

    def observe(self, pool: PoolSeen, seconds: Seconds, shape: Shape, told: Capacity) -> None:
        """Mutates, unless there were cold workers: caches fill and kernels compile in their steps.

        `told`: what their times say. Of mixed workers nothing is learned: one pass does both.
        """
        if pool.cold or pool.steps < _LEAST_STEPS or pool.busy_s <= 0:
            return
        match self._role:
            case Role.PREFILL:
                expected_s = told.prefill_s(shape) * pool.tokens / max(1.0, shape.uncached)
            case Role.DECODE:
                batch = pool.running * seconds / pool.busy_s  # of the time in which there was one
                expected_s = told.step_s(batch, shape) * pool.steps
            case Role.MIXED:
                return
        if not 0 < expected_s < float("inf"):
            return
        ratio = pool.busy_s / expected_s
        if isfinite(ratio):
            bounded = min(max(ratio, 1 / _FURTHEST), _FURTHEST)
            self.slower += _WEIGHT * (bounded - self.slower)
