"""How sure a goodput is that a search found."""

from itertools import pairwise
from math import inf

from antiphon.core.goodput import Estimate, Goodput


def goodput_range(found: Goodput) -> Estimate:
    """Goodput per device, and between which rates it may well lie.

    The 95 % intervals of attainment at the rates that were measured, joined by straight lines, are
    a band that falls with the rate. Goodput lies where the goal is within the band: from where its
    lower edge first falls below the goal, to where its upper edge last does. 0 and inf are bounds
    that were not measured.
    """
    shares = [(probe.rate_per_s, probe.attainment.both()) for probe in found.probes]
    low = _crossings([(rate, one.low) for rate, one in shares], found.target)
    high = _crossings([(rate, one.high) for rate, one in shares], found.target)
    return Estimate(
        found.per_device,
        min(low[0], found.rate_per_s) / found.devices,
        max(high[-1], found.rate_per_s) / found.devices,
    )


def _crossings(edge: list[tuple[float, float]], goal: float) -> list[float]:
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
