"""Placement: which devices do which phase, split how, and how many of each."""

from .candidates import Candidate, Colocated, Instance, Space, Split, matched, powers_of_two
from .search import Bounds, Judged, Objective, PlacementSearch, Promise

__all__ = [
    "Bounds",
    "Candidate",
    "Colocated",
    "Instance",
    "Judged",
    "Objective",
    "PlacementSearch",
    "Promise",
    "Space",
    "Split",
    "matched",
    "powers_of_two",
]
