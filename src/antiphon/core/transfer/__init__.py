"""Decisions about KV that crosses the network: which slice goes over which path, and until when."""

from .cut import LEAST_SLICE_BYTES, MOST_ROWS, MOST_SLICE_BYTES, Cut, slice_bytes
from .path_speed import PathSpeed
from .paths import Paths, PathView
from .slice_book import Arrival, Slice, SliceBook

__all__ = [
    "LEAST_SLICE_BYTES",
    "MOST_ROWS",
    "MOST_SLICE_BYTES",
    "Arrival",
    "Cut",
    "PathSpeed",
    "PathView",
    "Paths",
    "Slice",
    "SliceBook",
    "slice_bytes",
]
