"""Moving KV between processes of one host: shared regions, sealed pages, verified copies."""

from .generations import PageGenerations
from .mapping import MappedRegion, Miss
from .page_copy import Part
from .region import OwnedRegion
from .xxh3 import LEAST_BYTES, STRIPE_BYTES

__all__ = [
    "LEAST_BYTES",
    "STRIPE_BYTES",
    "MappedRegion",
    "Miss",
    "OwnedRegion",
    "PageGenerations",
    "Part",
]
