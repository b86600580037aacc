"""The time of a step as a sum of its parts: DistServe's model, for steps of any mix.

DistServe (Zhong et al. 2024; what its code fits is relative least squares) predicts a pure prefill
by A + B·Σ length + C·Σ length², and a pure decode by A + B·Σ context + C·batch, in two regimes of
the batch size. A step with chunked prefill is both at once, so here one sum serves all:

    seconds = fixed + per_token(tokens) + per_sampled(sampled) + chunk·chunks
            + context·Σ context + attention·Σ pairs

`per_token` and `per_sampled` are piecewise linear: a matrix product over few rows waits for the
weights, over many it computes. Each coefficient is at least 0, so more work never takes less time.
"""

from dataclasses import dataclass
from math import isfinite

from antiphon.types import Seconds, StepPlan

from .step_work import StepWork, work_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A function of a count that starts at 0 and never falls: regime i begins at `starts[i]`.

    Up to `starts[i + 1]` each further unit takes `slopes_s[i]` seconds; the last regime has no end.
    Raises `ValueError` unless `starts` grows from 0 and every slope is finite and at least 0.
    """

    starts: tuple[int, ...]
    slopes_s: tuple[float, ...]

    def __post_init__(self) -> None:
        starts = self.starts
        if not starts or starts[0] != 0 or list(starts) != sorted(set(starts)):
            raise ValueError("starts must grow from 0")
        if len(self.slopes_s) != len(starts):
            raise ValueError("slopes_s must have one slope for each of starts")
        for slope in self.slopes_s:
            check_amount("slopes_s", slope)

    def seconds(self, count: int) -> Seconds:
        """The time of `count` units."""
        starts, slopes = self.starts, self.slopes_s
        total, end = 0.0, count
        for i in range(len(starts) - 1, -1, -1):
            if end > starts[i]:
                total += slopes[i] * (end - starts[i])
                end = starts[i]
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedStepTime:
    """Implements `core.costs.StepTime`. All times in seconds; see the top of this file.

    Raises `ValueError` for a coefficient that is negative or not finite.
    """

    fixed_s: float
    token: Ramp
    sampled: Ramp
    chunk_s: float
    context_s: float
    attention_s: float

    def __post_init__(self) -> None:
        for name in ("fixed_s", "chunk_s", "context_s", "attention_s"):
            check_amount(name, getattr(self, name))

    def seconds(self, plan: StepPlan) -> Seconds:
        """Duration of `plan`, 0 without chunks. Takes time in proportion to its chunks."""
        return self.seconds_of(work_of(plan))

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """Duration of so many passes over a plan of decodes: contexts grow by one in each."""
        work = work_of(plan)
        more = work.chunks * passes * (passes - 1) // 2
        grown_s = (self.context_s + self.attention_s) * more
        return passes * self.seconds_of(work) + grown_s

    def lag_s(self, plan: StepPlan) -> Seconds:
        """A device of its own: the next step begins when the tokens of this one are there."""
        return 0.0

    def seconds_of(self, work: StepWork) -> Seconds:
        """Duration of `work`, in constant time: what-if questions add chunks with `work.plus`."""
        tokens, sampled, chunks, context, attention = work
        if not chunks:
            return 0.0
        return (
            self.fixed_s
            + self.token.seconds(tokens)
            + self.sampled.seconds(sampled)
            + self.chunk_s * chunks
            + self.context_s * context
            + self.attention_s * attention
        )


def check_amount(name: str, value: float) -> None:
    """Raise `ValueError` unless `value`, named `name`, is finite and at least 0."""
    if not (isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, but is {value}")
