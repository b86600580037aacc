"""Which workers serve a request: filter, predict, pick."""

from .demand import Demand, demand_of
from .forecast import CachedTokens, nothing_cached
from .option import Option
from .parts import STANDARD_PARTS, Parts, RouterLimits
from .prefix_index import Holdings, IndexCounts, PrefixIndex, StoredRun
from .router import KV_METHODS, ROUTER, ROUTER_METHODS, Router
from .scorers import Scorer, scorer_of
from .worker_belief import Load, WorkerBelief

__all__ = [
    "KV_METHODS",
    "ROUTER",
    "ROUTER_METHODS",
    "STANDARD_PARTS",
    "CachedTokens",
    "Demand",
    "Holdings",
    "IndexCounts",
    "Load",
    "Option",
    "Parts",
    "PrefixIndex",
    "Router",
    "RouterLimits",
    "Scorer",
    "StoredRun",
    "WorkerBelief",
    "demand_of",
    "nothing_cached",
    "scorer_of",
]
