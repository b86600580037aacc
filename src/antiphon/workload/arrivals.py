"""When requests come: open loop, so that a slow server does not slow its users down."""

from collections.abc import Iterator
from math import log1p

from antiphon.core.draws import Draws
from antiphon.types import Seconds


def poisson(rate_per_s: float, seed: int) -> Iterator[Seconds]:
    """Times since the start of a Poisson process, without end.

    Raises `ValueError` unless the rate is above 0.
    """
    if not rate_per_s > 0:
        raise ValueError(f"the rate must be above 0 requests a second, but is {rate_per_s}")
    return _poisson(rate_per_s, seed)


def _poisson(rate_per_s: float, seed: int) -> Iterator[Seconds]:
    draws = Draws(seed)
    now, number = 0.0, 0
    while True:
        now += -log1p(-draws.fraction("arrival", number)) / rate_per_s
        yield now
        number += 1
