"""From the names of `store.policy` to orders of eviction."""

from functools import partial

from antiphon.errors import BugError

from .hit_density import HitDensity
from .least_recent import LeastRecent
from .policy import PolicyFactory
from .recompute_cost import RecomputeCost
from .s3_fifo import S3Fifo

SPREAD_LAG = 2.0
"""While one prompt is put or read, at most so many blocks are put on a node for each of it."""


def policy_named(name: str, *, spread: bool = False) -> PolicyFactory:
    """The order that the configuration calls so. `BugError`: it is none of its choices.

    `spread`: chains lie on several nodes, as in a pool of stores. By hit density fewer tokens were
    found there than by recency: 14 % against 20 % of a trace of which one store finds 21 %.
    """
    match name:
        case "hit-density" | "lru" if spread:
            return partial(LeastRecent, lag=SPREAD_LAG)
        case "hit-density":
            return HitDensity
        case "lru":
            return LeastRecent
        case "s3-fifo":
            return S3Fifo
        case "cost":
            return RecomputeCost
        case _:
            raise BugError(f"there is no order of eviction {name!r}")
