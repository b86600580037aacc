"""What a search for goodput is to do, and what it says."""

import math
from dataclasses import dataclass
from enum import StrEnum

from antiphon.errors import UsageError
from antiphon.types import Seconds

from .attainment import Attainment
from .estimate import Estimate

FINEST_TOLERANCE = 0.005
"""Below it rates with four digits would no longer differ, and noise would be all that is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """Where to search, how exactly, and what it may cost. Raises `UsageError` if it makes no sense.

    `tolerance`: how far apart, relatively, the ends of the bracket may be. `run_s`: how long one
    run of a rate lasts, after its warm-up; longer, up to `longest_run_s`, where it would have fewer
    than `least_calls` calls, before which no rate is settled. `z`: how sure, in standard
    deviations, a rate must be above or below the target to be settled before its `runs_per_rate`.
    It is large, as a rate is looked at more than once, and few calls show little of how alike
    neighbours fare.
    """

    target: float = 0.9
    tolerance: float = 0.02
    start_per_s: float = 1.0
    lowest_per_s: float = 0.05
    highest_per_s: float = 10_000.0
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
        if not 0 < self.target < 1:
            raise UsageError(f"target {self.target}: it must be a share between 0 and 1, as 0.9")
        if not FINEST_TOLERANCE <= self.tolerance <= 1:
            raise UsageError(
                f"tolerance {self.tolerance}: it must lie between {FINEST_TOLERANCE} and 1, as 0.02"
            )
        if not self.lowest_per_s <= self.start_per_s <= self.highest_per_s < math.inf:
            raise UsageError(
                f"start_per_s {self.start_per_s}: it must lie between lowest_per_s "
                f"{self.lowest_per_s} and highest_per_s {self.highest_per_s}"
            )
        if not self.run_s <= self.longest_run_s < math.inf:
            raise UsageError(
                f"longest_run_s {self.longest_run_s}: it must be at least run_s, {self.run_s}"
            )


class StopReason(StrEnum):
    """Why a search ended, or that it has not."""

    FOUND = "found"
    """The bracket is within the tolerance, and both its ends are settled."""
    ALL_FAIL = "all_fail"
    """The lowest rate that was allowed fails: goodput is below it, and told as 0."""
    ALL_PASS = "all_pass"
    """The highest rate that was allowed passes: goodput may be above it."""
    OUT_OF_RUNS = "out_of_runs"
    """As many runs as were allowed: the bracket is wider, or less sure, than was wanted."""
    NO_CALLS = "no_calls"
    """A run had no call after its warm-up: there was nothing to judge by."""
    UNFINISHED = "unfinished"
    """There was more to measure."""


@dataclass(frozen=True, slots=True)
class RunAt:
    """What to measure next: calls at this rate, for so long after the warm-up."""

    rate_per_s: float
    duration_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """All that was measured at one rate.

    `share`: of the calls that met both targets, with Wilson's interval. `fitted`: its value on the
    falling curve, by which the rate passes or not.
    """

    rate_per_s: float
    runs: int
    attainment: Attainment
    share: Estimate
    fitted: float
    passes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What a search found, so far or in the end. Rates are of the whole system.

    `rate_per_s`: the highest rate that passes, 0 if none does. `fails_at_per_s`: the next rate that
    was measured, which fails; None: none does. Goodput lies between the two; the lower one, which
    was measured to hold, is what is told. `clear_pass_per_s`, `clear_fail_per_s`: on either side,
    the nearest rates whose own intervals are clear of the target (0, None: there are none): how far
    noise may have moved the result. `probes`: in order of their rates.
    """

    rate_per_s: float
    fails_at_per_s: float | None
    clear_pass_per_s: float
    clear_fail_per_s: float | None
    target: float
    devices: int
    stopped: StopReason
    probes: tuple[Probe, ...]

    @property
    def per_device(self) -> float:
        """Requests a second per device: the yardstick."""
        return self.rate_per_s / self.devices

    @property
    def estimate(self) -> Estimate:
        """`per_device`, between the rates that are clear: for the `difference` of two searches."""
        high = math.inf if self.clear_fail_per_s is None else self.clear_fail_per_s
        return Estimate(self.per_device, self.clear_pass_per_s / self.devices, high / self.devices)
