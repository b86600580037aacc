"""Percentiles, exact: of all values, not of buckets."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value below which `part` (0 … 1) of the ascending values lie; at least one of them.

    Between two neighbours it is interpolated: rank part · (n − 1), counted from 0 (Hyndman & Fan
    1996, type 7; the default of numpy, R and spreadsheets).
    """
    rank = part * (len(ordered) - 1)
    below = min(math.floor(rank), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    if low == high or rank == below:
        return low
    return low + (high - low) * (rank - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What is told of many values."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """The distribution of these, in any order. None: there are none."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(
            count=len(ordered),
            mean=math.fsum(ordered) / len(ordered),
            p50=percentile(ordered, 0.5),
            p90=percentile(ordered, 0.9),
            p95=percentile(ordered, 0.95),
            p99=percentile(ordered, 0.99),
            max=ordered[-1],
        )
