"""One block of the host tier."""

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TypeAlias

from antiphon.types import BlockKey, Seconds

from .tenant_account import TenantAccount

Slot: TypeAlias = int
"""Where a block lies in the store's memory, counted in blocks from 0."""


class BlockState(Enum):
    """Of a block that has a slot."""

    WRITING = "writing"
    VISIBLE = "visible"
    CANCELLED = "cancelled"
    """Cleared while it was written: the slot is free when the put ends."""
    LEAVING = "leaving"
    """Cleared while it was read: nobody finds it, the slot is free when the last lease ends."""


@dataclass(slots=True, eq=False)
class HeldBlock:
    """A block and its slot. Mutated by the host tier alone."""

    key: BlockKey
    parent: BlockKey | None
    account: TenantAccount
    slot: Slot
    position: int
    writer: str
    state: BlockState = BlockState.WRITING
    leases: int = 0
    pinned: bool = False
    read_at: Seconds = -inf
    """When it was read last; what is read is often put again by its reader."""
    idle: bool = False
    """What its policy was told last: whether it may go."""
