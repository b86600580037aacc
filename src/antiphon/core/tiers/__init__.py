"""Decisions of the store's tiers: which blocks are kept, for whom, and what goes."""

from .bring_up import BLOCKS_A_TURN, LOCATE_SHARE, BringUp, Load, Turn
from .declined import Declined, DeclineReason
from .eviction import EvictionPolicy, PolicyFactory, policy_named
from .held_block import Slot
from .host_tier import HostTier
from .put_queue import PutQueue, Waiting
from .slower_tier import SlowerTier, tiers_to_write
from .tenant_account import TenantUse

__all__ = [
    "BLOCKS_A_TURN",
    "LOCATE_SHARE",
    "BringUp",
    "DeclineReason",
    "Declined",
    "EvictionPolicy",
    "HostTier",
    "Load",
    "PolicyFactory",
    "PutQueue",
    "Slot",
    "SlowerTier",
    "TenantUse",
    "Turn",
    "Waiting",
    "policy_named",
    "tiers_to_write",
]
