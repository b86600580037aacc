"""Numbers with their uncertainty, and whether two of them differ.

All intervals take `z`, the half width in standard deviations (1.96: 95 %), and need no chance. They
hold for calls that are independent of each other. Calls that wait in the same queue are not quite,
so an interval that is taken from one run is rather too narrow than too wide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .distribution import percentile

Z95 = 1.959963984540054
"""95 % of a normal distribution lie within so many standard deviations."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, and between which bounds it may well lie."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside, so that what was measured speaks against it."""
        return not self.low <= value <= self.high


def share(met: int, of: int, z: float = Z95) -> Estimate:
    """`met` of `of` calls, with Wilson's score interval (Wilson 1927, JASA 22, pp. 209–212).

    It stays within [0, 1] and is sound for few calls and for shares near 0 or 1, where the textbook
    interval is not. Nothing of nothing is 0, and may be anything.
    """
    if of == 0:
        return Estimate(0.0, 0.0, 1.0)
    value = met / of
    square = z * z / of
    middle = (value + square / 2) / (1 + square)
    half = math.sqrt(square * (value * (1 - value) + square / 4)) / (1 + square)
    return Estimate(value, max(0.0, min(value, middle - half)), min(1.0, max(value, middle + half)))


def percentile_estimate(values: Sequence[float], part: float, z: float = Z95) -> Estimate:
    """A percentile of times (>= 0), with the interval between two of the sorted values.

    Which two is a matter of counting alone: how many of n independent values lie below the true
    percentile is binomial (David & Nagaraja, "Order Statistics", 7.1). No distribution is assumed.
    Where there are too few values to bound it, the bounds are 0 and inf. `values`: at least one.
    """
    ordered = sorted(values)
    value = percentile(ordered, part)
    below, above = rank_bounds(len(ordered), part, z)
    low = ordered[below - 1] if below >= 1 else 0.0
    high = ordered[above - 1] if above <= len(ordered) else math.inf
    return Estimate(value, min(low, value), max(high, value))


def rank_bounds(count: int, part: float, z: float = Z95) -> tuple[int, int]:
    """Ranks, from 1, of the sorted values between which the true percentile lies.

    0 and `count` + 1 stand for "no value is low, or high, enough".
    """
    tail = math.erfc(z / math.sqrt(2)) / 2
    deviation = math.sqrt(count * part * (1 - part))
    rank = max(0, math.floor(count * part - 12 * deviation - 12))
    mass, below = 0.0, 0
    while rank <= count:
        mass += _binomial(count, part, rank)
        rank += 1
        if mass <= tail:
            below = rank
        if mass >= 1 - tail:
            break
    return below, rank


def difference(a: Estimate, b: Estimate) -> Estimate:
    """a − b of two independent estimates, its interval made of theirs.

    Of two shares it is Newcombe's hybrid score interval (1998, Statistics in Medicine 17, method
    10); of any others the same rule in general (Zou & Donner 2008, "MOVER"). The difference is
    within noise unless the interval excludes 0.
    """
    value = a.value - b.value
    return Estimate(
        value,
        value - math.hypot(a.value - a.low, b.high - b.value),
        value + math.hypot(a.high - a.value, b.value - b.low),
    )


def _binomial(count: int, part: float, rank: int) -> float:
    """The chance that `rank` of `count` happen that happen with the chance `part` each."""
    if part in (0.0, 1.0):
        return float(rank == count * part)
    return math.exp(
        math.lgamma(count + 1)
        - math.lgamma(rank + 1)
        - math.lgamma(count - rank + 1)
        + rank * math.log(part)
        + (count - rank) * math.log1p(-part)
    )
