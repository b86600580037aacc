"""From the names of `store.policy` to orders of eviction."""

from antiphon.errors import BugError

from .hit_density import HitDensity
from .least_recent import LeastRecent
from .policy import PolicyFactory
from .recompute_cost import RecomputeCost
from .s3_fifo import S3Fifo


def policy_named(name: str) -> PolicyFactory:
    """The order that the configuration calls so. `BugError`: it is none of its choices."""
    match name:
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
