"""Placement: which devices do which phase, split how, and how many of each."""

from .candidates import Candidate, Colocated, Instance, Split
from .rate_matching import Side, matched, shared_per_s
from .search import Judged, PlacementSearch, SearchEffort, Trial
from .space import Bounds, Objective, Promise, Space, promises

__all__ = [
    "Bounds",
    "Candidate",
    "Colocated",
    "Instance",
    "Judged",
    "Objective",
    "PlacementSearch",
    "Promise",
    "SearchEffort",
    "Side",
    "Space",
    "Split",
    "Trial",
    "matched",
    "promises",
    "shared_per_s",
]
