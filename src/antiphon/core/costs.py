"""What decisions need to know of the time that work takes. `perf/` implements these Protocols."""

from typing import Protocol

from antiphon.types import Seconds, StepPlan


class StepTime(Protocol):
    """Predicts how long one forward pass takes on one kind of device."""

    def seconds(self, plan: StepPlan) -> Seconds:
        """Duration of `plan`; never negative. Does not mutate."""
        ...
