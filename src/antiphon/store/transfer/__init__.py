"""Moving KV between processes of one host: shared regions, sealed pages, verified copies."""

from .generations import PageGenerations
from .mapping import MappedRegion, Miss
from .region import OwnedRegion

__all__ = [
    "MappedRegion",
    "Miss",
    "OwnedRegion",
    "PageGenerations",
]
