"""Numbers with their uncertainty, and whether two of them differ.

All intervals take `z`, the half width in standard deviations (1.96: 95 %), and need no chance.

Calls that wait in the same queue fare alike: near saturation, forty of them may say no more than
one that is independent. `design_effect` sees that from the order of the calls; an interval that is
made without it is too narrow for a server that is close to its limit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from .distribution import percentile

T = TypeVar("T")

Z95 = 1.959963984540054
"""95 % of a normal distribution lie within so many standard deviations."""

BATCHES = 10
"""Calls of a run are cut into so many parts to see how alike neighbours fare: few enough that a
part outlasts a busy time of the queue, many enough to see them scatter."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, and between which bounds it may well lie."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside, so that what was measured speaks against it."""
        return not self.low <= value <= self.high


def share(met: int, of: int, z: float = Z95, *, design_effect: float = 1.0) -> Estimate:
    """`met` of `of` calls, with Wilson's score interval (Wilson 1927, JASA 22, pp. 209–212).

    It stays within [0, 1] and is sound for few calls and for shares near 0 or 1, where the textbook
    interval is not. So many calls in `design_effect` count as one. Nothing of nothing is 0, and may
    be anything.
    """
    if of == 0:
        return Estimate(0.0, 0.0, 1.0)
    value = met / of
    square = z * z * design_effect / of
    middle = (value + square / 2) / (1 + square)
    half = math.sqrt(square * (value * (1 - value) + square / 4)) / (1 + square)
    return Estimate(value, max(0.0, min(value, middle - half)), min(1.0, max(value, middle + half)))


def design_effect(batches: Sequence[tuple[int, int]]) -> float:
    """How many calls say as much as one that is independent; at least 1.

    `batches`: (met, calls) of consecutive calls. Were calls independent, shares of batches would
    scatter as little as a coin's; by how much more they do is the answer (batch means: Law,
    "Simulation Modeling and Analysis"; the term is Kish's). Where all calls fare the same there is
    nothing to see, and it is 1: that a few calls all met their targets proves little.
    """
    met, of = sum(one for one, _of in batches), sum(of for _one, of in batches)
    if len(batches) < 2 or met in (0, of):
        return 1.0
    value = met / of
    scatter = sum((one - value * calls) ** 2 for one, calls in batches)
    scatter /= len(batches) - 1
    coin = value * (1 - value) * of / (of - 1)
    return min(float(of), max(1.0, scatter / coin * len(batches) / of))


def design_effect_of(outcomes: Sequence[bool]) -> float:
    """The same, of calls in the order in which they were due."""
    return design_effect([(sum(batch), len(batch)) for batch in in_batches(outcomes)])


def in_batches(ordered: Sequence[T]) -> list[Sequence[T]]:
    """Consecutive parts of about equal size: `BATCHES`, or fewer where there is not so much."""
    size = max(1, -(-len(ordered) // BATCHES))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def share_in_order(outcomes: Sequence[bool], z: float = Z95) -> Estimate:
    """The `share` of outcomes that are true, of calls in the order in which they were due."""
    return share(sum(outcomes), len(outcomes), z, design_effect=design_effect_of(outcomes))


def percentile_estimate(values: Sequence[float], part: float, z: float = Z95) -> Estimate:
    """A percentile of times (>= 0), at least one, in the order in which their calls were due."""
    return with_rank_interval(percentile(sorted(values), part), values, part, z)


def with_rank_interval(
    value: float, values: Sequence[float], part: float, z: float = Z95
) -> Estimate:
    """`value`, with the interval of the percentile `part` of these, between two of them.

    Which two is a matter of counting alone: how many of n independent values lie below the true
    percentile is binomial (David & Nagaraja, "Order Statistics", 7.1). No distribution is assumed.
    How many of the n count is seen from their order (`design_effect`). Where there are too few to
    bound it, the bounds are 0 and inf.
    """
    ordered = sorted(values)
    alike = design_effect_of([one <= value for one in values])
    below, above = rank_bounds(len(ordered), part, z, design_effect=alike)
    low = ordered[below - 1] if below >= 1 else 0.0
    high = ordered[above - 1] if above <= len(ordered) else math.inf
    return Estimate(value, min(low, value), max(high, value))


def rank_bounds(
    count: int, part: float, z: float = Z95, *, design_effect: float = 1.0
) -> tuple[int, int]:
    """Ranks, from 1, of the sorted values between which the true percentile lies.

    0 and `count` + 1 stand for "no value is low, or high, enough". So many values in
    `design_effect` count as one.
    """
    independent = max(1, round(count / design_effect))
    below, above = _independent_ranks(independent, part, math.erfc(z / math.sqrt(2)) / 2)
    if above > independent:
        return below * count // independent, count + 1
    return below * count // independent, min(count, -(-above * count // independent))


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


def _independent_ranks(count: int, part: float, tail: float) -> tuple[int, int]:
    """The ranks outside of which the percentile lies with the chance `tail` on either side."""
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
