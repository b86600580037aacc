"""What a search for goodput is to do."""

import math
from dataclasses import dataclass

from antiphon.errors import UsageError
from antiphon.types import Seconds

from .attainment import GOAL

FINEST_TOLERANCE = 0.005
"""Below it rates with four digits would no longer differ, and noise would be all that is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """Where to search, how exactly, and what it may cost. Raises `UsageError` if it makes no sense.

    `tolerance`: how far apart, relatively, the ends of the bracket may be. `run_s`: how long one
    run of a rate lasts, after its warm-up; longer, up to `longest_run_s`, where it would have fewer
    than `least_calls` calls, before which no rate is settled. `growth`: the first step from
    `start_per_s`, up or down; each next one is its square, up to 2. `z`: how sure, in standard
    deviations, a rate must be above or below the goal to be settled before its `runs_per_rate`.
    It is large, as a rate is looked at more than once, and few calls show little of how alike
    neighbours fare.
    """

    goal: float = GOAL
    tolerance: float = 0.02
    start_per_s: float = 1.0
    lowest_per_s: float = 0.05
    highest_per_s: float = 10_000.0
    growth: float = 2.0
    run_s: Seconds = 60.0
    longest_run_s: Seconds = 300.0
    least_calls: int = 100
    runs_per_rate: int = 3
    most_runs: int = 60
    z: float = 3.0
    devices: int = 1

    def __post_init__(self) -> None:
        for name in ("lowest_per_s", "run_s", "z"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} {getattr(self, name)}: it must be a positive number")
        for name in ("least_calls", "runs_per_rate", "most_runs", "devices"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} {getattr(self, name)}: it must be at least 1")
        if not 0 < self.goal < 1:
            raise UsageError(f"goal {self.goal}: it must be a share between 0 and 1, as 0.9")
        if not FINEST_TOLERANCE <= self.tolerance <= 1:
            raise UsageError(
                f"tolerance {self.tolerance}: it must lie between {FINEST_TOLERANCE} and 1, as 0.02"
            )
        if not 1 < self.growth <= 2:
            raise UsageError(f"growth {self.growth}: it must be above 1, and at most 2")
        if not self.lowest_per_s <= self.start_per_s <= self.highest_per_s < math.inf:
            raise UsageError(
                f"start_per_s {self.start_per_s}: it must lie between lowest_per_s "
                f"{self.lowest_per_s} and highest_per_s {self.highest_per_s}"
            )
        if not self.run_s <= self.longest_run_s < math.inf:
            raise UsageError(
                f"longest_run_s {self.longest_run_s}: it must be at least run_s, {self.run_s}"
            )


@dataclass(frozen=True, slots=True)
class RunAt:
    """What to measure next: calls at this rate, for so long after the warm-up."""

    rate_per_s: float
    duration_s: Seconds
