"""What every order of eviction is told, and what it is asked."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from antiphon.types import BlockKey


class EvictionPolicy(Protocol):
    """The order in which one tenant's blocks go. It decides nothing but that.

    Its owner says which blocks can go at all (`idle`): those that nobody reads, that nobody pinned
    and that no other block continues. A victim is therefore always the end of a chain, whatever the
    order. All calls are O(log n) amortised, memory is bounded by a multiple of the blocks.
    """

    def add(self, key: BlockKey, position: int) -> None:
        """A new block, `position` blocks after the beginning of its chain as far as it is here.

        It is busy until `idle` is said.
        """
        ...

    def use(self, key: BlockKey) -> None:
        """The block was wanted again. Uses of one prompt are told from its end to its beginning."""
        ...

    def idle(self, key: BlockKey) -> None:
        """The block may go from now on."""
        ...

    def busy(self, key: BlockKey) -> None:
        """The block may not go from now on."""
        ...

    def victim(self) -> BlockKey | None:
        """The idle block that is worth least; None: no block is idle.

        May move blocks between internal queues; the block stays until `remove`.
        """
        ...

    def remove(self, key: BlockKey, *, evicted: bool) -> None:
        """The block is gone. `evicted`: because it was the victim, not because it was cleared."""
        ...


PolicyFactory: TypeAlias = Callable[[], EvictionPolicy]
"""Makes the order of one more tenant."""
