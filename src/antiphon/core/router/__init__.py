"""Which workers serve a request: filter, predict, pick."""

from .demand import Demand, demand_of
from .option import Option
from .parts import STANDARD_PARTS, Parts
from .prefix_beliefs import HeldPrefix, HeldPrefixes, PrefixBeliefs, StoredTokens
from .prefix_index import Holdings, PrefixIndex, StoredRun
from .prompt_keys import KeySpace
from .router import KV_METHODS, ROUTER, ROUTER_METHODS, Router
from .router_limits import RouterLimits
from .scorers import Scorer, scorer_of
from .worker_belief import Load, WorkerBelief

__all__ = [
    "KV_METHODS",
    "ROUTER",
    "ROUTER_METHODS",
    "STANDARD_PARTS",
    "Demand",
    "HeldPrefix",
    "HeldPrefixes",
    "Holdings",
    "KeySpace",
    "Load",
    "Option",
    "Parts",
    "PrefixBeliefs",
    "PrefixIndex",
    "Router",
    "RouterLimits",
    "Scorer",
    "StoredRun",
    "StoredTokens",
    "WorkerBelief",
    "demand_of",
    "scorer_of",
]
