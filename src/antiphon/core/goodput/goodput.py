"""What a search for goodput found, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import inf

from .attainment import Attainment
from .estimate import Estimate


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """All that was measured at one rate.

    `fitted`: the share that met both targets, on the falling curve; by it the rate passes or not.
    """

    rate_per_s: float
    runs: int
    attainment: Attainment
    fitted: float
    passes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What a search found, so far or in the end. Rates are of the whole system.

    `rate_per_s`: the highest rate that passes, 0 if none does. `fails_at_per_s`: the next rate that
    was measured, which fails; None: none does. Goodput lies between the two; the lower one, which
    was measured to hold, is what is told. `probes`: in order of their rates.
    """

    rate_per_s: float
    fails_at_per_s: float | None
    goal: float
    devices: int
    stopped: StopReason
    probes: tuple[Probe, ...]

    @property
    def per_device(self) -> float:
        """Requests a second per device: the yardstick."""
        return self.rate_per_s / self.devices

    @property
    def estimate(self) -> Estimate:
        """`per_device`, and between which bounds it may well lie.

        The 95 % intervals of attainment at the rates that were measured, joined by straight lines,
        are a band that falls with the rate. Goodput lies where the goal is within the band: from
        where its lower edge first falls below the goal to where its upper edge last does. 0 and
        inf are bounds that were not measured.
        """
        shares = [(probe.rate_per_s, probe.attainment.both()) for probe in self.probes]
        low = _crossings([(rate, share.low) for rate, share in shares], self.goal)[0]
        high = _crossings([(rate, share.high) for rate, share in shares], self.goal)[-1]
        return Estimate(
            self.per_device,
            min(low, self.rate_per_s) / self.devices,
            max(high, self.rate_per_s) / self.devices,
        )


def _crossings(edge: Sequence[tuple[float, float]], goal: float) -> list[float]:
    """The rates at which an edge, in order of rates, falls below the goal. At least one.

    An edge that is below from the start has fallen at 0; one that is never below falls at inf.
    """
    rates = [0.0] if not edge or edge[0][1] < goal else []
    for (rate, above), (next_rate, below) in pairwise(edge):
        if above >= goal > below:
            rates.append(rate + (next_rate - rate) * (above - goal) / (above - below))
    if not edge or edge[-1][1] >= goal:
        rates.append(inf)
    return rates
