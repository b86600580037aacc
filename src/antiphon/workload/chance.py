"""Draws from named distributions: functions of a seed and a purpose, as all of `Draws`."""

import math
from statistics import NormalDist

from antiphon.core.draws import Draws

STANDARD_NORMAL = NormalDist()


def standard_normal(draws: Draws, *purpose: str | int) -> float:
    """From the normal distribution of mean 0 and deviation 1."""
    return STANDARD_NORMAL.inv_cdf((draws.bits(*purpose) // 2**12 + 0.5) / 2**52)


def exponential(mean: float, draws: Draws, *purpose: str | int) -> float:
    """From the exponential distribution of this mean."""
    return -math.log1p(-draws.fraction(*purpose)) * mean


def gamma(shape: float, draws: Draws, *purpose: str | int) -> float:
    """From the gamma distribution of this shape and scale 1 (Marsaglia and Tsang, 2000)."""
    if shape < 1:
        boost = (1.0 - draws.fraction(*purpose, "boost")) ** (1 / shape)
        return boost * gamma(shape + 1, draws, *purpose)
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    attempt = 0
    while True:
        x = standard_normal(draws, *purpose, attempt, "normal")
        v = (1 + c * x) ** 3
        u = 1.0 - draws.fraction(*purpose, attempt, "uniform")
        if v > 0 and math.log(u) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v
        attempt += 1
