"""What goes first when memory is short: orders of eviction behind one interface."""

from .hit_density import HitDensity
from .least_recent import LeastRecent
from .policy import EvictionPolicy, PolicyFactory
from .policy_named import policy_named
from .recompute_cost import RecomputeCost
from .s3_fifo import S3Fifo

__all__ = [
    "EvictionPolicy",
    "HitDensity",
    "LeastRecent",
    "PolicyFactory",
    "RecomputeCost",
    "S3Fifo",
    "policy_named",
]
