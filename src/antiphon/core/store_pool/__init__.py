"""Decisions of a pool of stores: where a block lives, who is asked for it, and what goes first."""

from .announced import Announced
from .blob_shelf import BlobShelf
from .fetch_terms import EXACT, FetchTerms
from .level_book import Chosen, LevelBook, LevelGuess
from .placing import Placing
from .pool_index import POOLED_TIERS, Holder, PoolIndex
from .pool_members import PoolMembers, PoolNode
from .pooled_host_tier import PooledHostTier
from .read_level import RAW, LevelSetting, ReadLevel, read_level
from .rendezvous import home_of
from .replicas import ReplicaRules, Replicas
from .sender import NOBODY, Sender
from .sources import Sources
from .store_pool import PoolRules, StorePool

__all__ = [
    "EXACT",
    "NOBODY",
    "POOLED_TIERS",
    "RAW",
    "Announced",
    "BlobShelf",
    "Chosen",
    "FetchTerms",
    "Holder",
    "LevelBook",
    "LevelGuess",
    "LevelSetting",
    "Placing",
    "PoolIndex",
    "PoolMembers",
    "PoolNode",
    "PoolRules",
    "PooledHostTier",
    "ReadLevel",
    "ReplicaRules",
    "Replicas",
    "Sender",
    "Sources",
    "StorePool",
    "home_of",
    "read_level",
]
