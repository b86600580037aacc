"""A device whose steps were measured: `antiphon profile` wrote down how long they take."""

from dataclasses import dataclass
from pathlib import Path

from antiphon.types import Seconds, StepPlan

from .phase_time import FittedPhaseTime
from .profile_file import read_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledDevice(FittedPhaseTime):
    """Implements `core.costs.StepTime` and `PhaseTime` by one fit, for the pool of a fleet."""

    def seconds(self, plan: StepPlan) -> Seconds:
        """See `core.costs.StepTime`."""
        return self.step_time.seconds(plan)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `core.costs.StepTime`."""
        return self.step_time.repeated_s(plan, passes)

    def lag_s(self, plan: StepPlan) -> Seconds:
        """0: the next step begins when the tokens of this one are there."""
        return self.step_time.lag_s(plan)

    def occupied_s(self, tokens: int, start: int = 0) -> Seconds:
        """How long such a prompt keeps the next from beginning: all of `prefill_s`."""
        return self.prefill_s(tokens, start)


def profiled_device(path: Path, *, step_tokens: int) -> ProfiledDevice:
    """The device of the profile in `path`; a prompt is computed `step_tokens` a step.

    Raises `UsageError` as `read_profile` does.
    """
    return ProfiledDevice(step_time=read_profile(path).step_time, step_tokens=step_tokens)
