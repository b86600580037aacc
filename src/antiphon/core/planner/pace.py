"""How many times as long work takes as a device's times say, learned while it is done.

A profile may be of another machine, and a roofline is an estimate: without this, a planner sizes
its fleet by what it was told and not by what it sees.
"""

from math import isfinite

from antiphon.types import Role, Seconds

from .capacity import Capacity, Shape
from .observation import PoolSeen

_WEIGHT = 0.2
"""Of the newest interval. The first ones weigh more: the profile counts as one of them."""
_FURTHEST = 4.0
"""One measurement says no more than so many times as slow, or as quick."""
_LEAST_SHARE = 0.05
"""Of an interval that was computed in; less says nothing."""


class Pace:
    """Of the workers of one role. 1: as their times say."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._measured = 0
        self.slower = 1.0

    def observe(self, pool: PoolSeen, seconds: Seconds, shape: Shape, told: Capacity) -> None:
        """Mutates. `told`: what their times say.

        Cold workers are not in what a pool did: caches fill and kernels compile in their steps.
        While there are any, nothing is learned of decoding. Passes of mixed workers do both: each
        is taken to decode as many sequences as ran while there was any, and what was computed
        beyond that were prompts.
        """
        if pool.busy_s <= _LEAST_SHARE * seconds:
            return
        match self._role:
            case Role.PREFILL:
                expected_s = _prompts_s(pool.tokens, shape, told)
            case Role.DECODE | Role.MIXED:
                if pool.cold:  # they have fewer in work than others, and nobody knows how many
                    return
                batch = pool.running * seconds / pool.busy_s  # while there was any
                expected_s = told.step_s(batch, shape) * pool.steps
                if self._role is Role.MIXED:
                    decoded = batch * pool.steps
                    expected_s += _prompts_s(max(0.0, pool.tokens - decoded), shape, told)
        if not 0 < expected_s < float("inf"):
            return
        ratio = pool.busy_s / expected_s
        if isfinite(ratio):
            bounded = min(max(ratio, 1 / _FURTHEST), _FURTHEST)
            self.slower += max(_WEIGHT, 1 / (2 + self._measured)) * (bounded - self.slower)
            self._measured += 1


def _prompts_s(tokens: float, shape: Shape, told: Capacity) -> Seconds:
    """How long so many tokens of usual prompts keep a worker busy."""
    return told.occupied_s(shape) * tokens / max(1.0, shape.uncached)
