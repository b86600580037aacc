"""How far predictions are from measurements."""

from collections.abc import Iterable
from dataclasses import dataclass

from .fit import Measured
from .step_time import FittedStepTime, check_amount

GOAL_MEDIAN = 0.05
GOAL_P95 = 0.15
"""What a profile should reach on points that the fit has not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Relative errors |predicted − measured| / measured over `points` steps.

    Raises `ValueError` for a number that is negative or not finite.
    """

    points: int
    median: float
    p95: float
    worst: float

    def __post_init__(self) -> None:
        for name in ("points", "median", "p95", "worst"):
            check_amount(name, getattr(self, name))

    @property
    def good(self) -> bool:
        """Whether the goal is met."""
        return self.median <= GOAL_MEDIAN and self.p95 <= GOAL_P95


def accuracy(model: FittedStepTime, steps: Iterable[Measured]) -> Accuracy:
    """The errors of `model` on `steps`, of which there is at least one."""
    errors = sorted(
        abs(model.seconds_of(step.work) - step.seconds) / step.seconds for step in steps
    )
    return Accuracy(
        points=len(errors),
        median=quantile(errors, 0.5),
        p95=quantile(errors, 0.95),
        worst=errors[-1],
    )


def quantile(ascending: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie, linear between neighbours."""
    place = share * (len(ascending) - 1)
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (place - low) * (ascending[high] - ascending[low])
