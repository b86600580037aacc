"""Placement: which devices do which phase, split how, and how many of each."""

from .candidates import Candidate, Colocated, Instance, Split
from .rate_matching import Side, matched, shared_per_s
from .search import Judged, Look, PlacementSearch, SearchEffort, Trial
from .space import Bounds, Objective, Promise, Space, bound_of, promises

__all__ = [
    "Bounds",
    "Candidate",
    "Colocated",
    "Instance",
    "Judged",
    "Look",
    "Objective",
    "PlacementSearch",
    "Promise",
    "SearchEffort",
    "Side",
    "Space",
    "Split",
    "Trial",
    "bound_of",
    "matched",
    "promises",
    "shared_per_s",
]
