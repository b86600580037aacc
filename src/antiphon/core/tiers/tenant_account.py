"""What one tenant has in the host tier."""

from dataclasses import dataclass

from antiphon.types import Seconds

from .eviction import EvictionPolicy


@dataclass(slots=True, eq=False)
class TenantAccount:
    """Slots of a tenant, and the order in which its blocks go. Mutated by the host tier alone."""

    tenant: bytes
    policy: EvictionPolicy
    active_at: Seconds
    """When it last put or read."""
    slots: int = 0
    """All that are not free for others because of it, whatever state their blocks are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUse:
    """Counts of one tenant at one moment."""

    tenant: bytes
    blocks: int
    """Slots that its blocks take, those being written or given up included."""
    limit_blocks: int
