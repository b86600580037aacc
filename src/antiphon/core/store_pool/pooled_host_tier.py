"""The host tier of a node of a pool: copies of what others have go first, and peers may read."""

from collections.abc import Callable, Sequence
from typing import Any

from antiphon.core.tiers import Declined, HostTier, Slot
from antiphon.core.tiers.held_block import BlockState
from antiphon.types import BlockKey, LeaseId, Seconds

_REMEMBERED = 4
"""Positions of blocks, for each slot."""


class PooledHostTier(HostTier):
    """A `HostTier`. `first_to_go` names a copy whose slot is to be used next, among blocks that are
    idle, as `StorePool.first_to_go` does.

    Parents and children of one prompt lie on different nodes, so that a block is not refused for
    want of its parent, nor read for the sake of a chain: `lend` gives each block by itself.
    """

    def __init__(
        self,
        *,
        first_to_go: Callable[[Callable[[BlockKey], bool], Seconds], BlockKey | None],
        **tier: Any,
    ) -> None:
        super().__init__(**tier)
        self._first_to_go = first_to_go
        self._positions: dict[BlockKey, int] = {}
        """Of blocks that are, or were, here: how many are before each."""

    def begin_put(
        self,
        key: BlockKey,
        parent: BlockKey | None,
        tenant: bytes,
        now: Seconds,
        *,
        writer: str = "",
        needs_parent: bool = False,
        position: int = 0,
    ) -> Slot | Declined:
        """See `HostTier`. A copy goes before any block that is no copy."""
        self.expire(now)
        if not self.free_slots and self._blocks.get(key) is None:
            spare = self._first_to_go(self._is_idle, now)
            if spare is not None:
                self.drop(spare)
        known = self._positions.get(parent, -1) + 1 if parent is not None else 0
        position = max(position, known, self._positions.get(key, 0))
        slot = super().begin_put(
            key,
            parent,
            tenant,
            now,
            writer=writer,
            needs_parent=needs_parent,
            position=position,
        )
        if not isinstance(slot, Declined):
            block = self._blocks.get(key)
            assert block is not None
            self.expect(key, block.position)
        return slot

    def position_of(self, key: BlockKey) -> int:
        """How many blocks are before it in its chain, as far as is known."""
        return self._positions.get(key, 0)

    def expect(self, key: BlockKey, position: int) -> None:
        """The block has so many before it. Remembered for a while, whether it is here or not."""
        self._positions.pop(key, None)
        self._positions[key] = position
        if len(self._positions) > _REMEMBERED * self._slots.total:
            del self._positions[next(iter(self._positions))]

    def lend(
        self, keys: Sequence[BlockKey], lease: LeaseId, now: Seconds, *, holder: str
    ) -> dict[BlockKey, Slot]:
        """The slots of those of the keys that are visible, wherever in their chains: they stay for
        `lease_ttl_s`. Counts as a use. None visible, or too many leases: there is no lease."""
        self.expire(now)
        blocks = [
            block
            for key in dict.fromkeys(keys)
            if (block := self._blocks.get(key)) and block.state is BlockState.VISIBLE
        ]
        if not blocks or len(self._leases) >= self._max_leases:
            return {}
        for block in reversed(blocks):
            block.read_at = now
            block.account.policy.use(block.key)
        slots = self._lease(blocks, lease, holder, now)
        return {block.key: slot for block, slot in zip(blocks, slots, strict=True)}

    def parent_of(self, key: BlockKey) -> BlockKey | None:
        """What a block that is visible continues."""
        block = self._blocks.get(key)
        return None if block is None else block.parent

    def tenant_of(self, key: BlockKey) -> bytes:
        """Whose a block is that is visible."""
        block = self._blocks.get(key)
        return b"" if block is None else block.account.tenant

    def drop_idle(self, key: BlockKey) -> bool:
        """`drop`, unless somebody reads it, or it is pinned."""
        return self._is_idle(key) and self.drop(key)

    def _is_idle(self, key: BlockKey) -> bool:
        block = self._blocks.get(key)
        return (
            block is not None
            and block.state is BlockState.VISIBLE
            and not block.leases
            and not block.pinned
        )
