"""Decisions of the store's tiers: which blocks are kept, for whom, and what goes."""

from .declined import Declined, DeclineReason
from .eviction import EvictionPolicy, PolicyFactory, policy_named
from .held_block import Slot
from .host_tier import HostTier
from .tenant_account import TenantUse

__all__ = [
    "DeclineReason",
    "Declined",
    "EvictionPolicy",
    "HostTier",
    "PolicyFactory",
    "Slot",
    "TenantUse",
    "policy_named",
]
