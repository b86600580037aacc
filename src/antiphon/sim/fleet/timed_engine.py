"""An engine that takes a device's time: answers are known beforehand, KV is not looked at.

It stands in the place of `ScriptedEngine` where runs are too large to check every read.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from antiphon.core.costs import StepTime
from antiphon.types import (
    DrawnRun,
    RequestId,
    Sample,
    Seconds,
    StepPlan,
    StepResult,
    TokenId,
)

from .token_sessions import EOS

Answers: TypeAlias = Mapping[RequestId, tuple[TokenId, ...]]
"""What each open request will be answered with, its end mark included."""


class DeviceTime(StepTime, Protocol):
    """The time of a device, or of several that work as one."""

    def lag_s(self, plan: StepPlan) -> Seconds:
        """How much later a step's tokens are there than the next step may begin."""
        ...


class TimedEngine:
    """Implements `PassEngine`. `answers` are of whoever asks: decisions never see them.

    A request whose answer is not there any more, as nobody waits for it, ends at once.
    """

    def __init__(self, step_time: DeviceTime, answers: Answers) -> None:
        self._step_time = step_time
        self._answers = answers
        self._timed: tuple[StepPlan, int, Seconds] | None = None
        """What was asked last: it is asked again when the plan has run."""

    def passes(self, plan: StepPlan) -> int:
        """See `PassEngine`."""
        if plan.repeat == 1:
            return 1
        answers = self._answers
        left = min(len(answers.get(one.request.id, ())) - one.index for one in plan.chunks)
        return max(1, min(plan.repeat, left))

    def passes_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `PassEngine`."""
        timed = self._timed
        if timed is not None and timed[0] is plan and timed[1] == passes:
            return timed[2]
        model = self._step_time
        seconds = model.seconds(plan) if passes == 1 else model.repeated_s(plan, passes)
        self._timed = (plan, passes, seconds)
        return seconds

    def lag_s(self, plan: StepPlan) -> Seconds:
        """See `PassEngine`."""
        return self._step_time.lag_s(plan)

    def forward(self, plan: StepPlan, passes: int = 1) -> StepResult:
        """See `PassEngine`."""
        answers, elapsed_s = self._answers, self.passes_s(plan, passes)
        if passes > 1:
            runs = tuple(
                DrawnRun(
                    one.request.id,
                    one.sequence,
                    answers.get(one.request.id, ())[one.index : one.index + passes]
                    or (EOS,) * passes,
                )
                for one in plan.chunks
            )
            return StepResult(number=plan.number, runs=runs, elapsed_s=elapsed_s)
        samples = tuple(
            Sample(
                one.request.id,
                sequence,
                answers[one.request.id][one.index] if one.request.id in answers else EOS,
            )
            for one in plan.chunks
            for sequence in one.samples
        )
        return StepResult(number=plan.number, samples=samples, elapsed_s=elapsed_s)
