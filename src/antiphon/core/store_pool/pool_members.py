"""Who is in the pool, as one of its nodes sees it: names with lives, no master.

A node's name stays over its lives, and with it the blocks that it is home to; a life has an
incarnation of its own, and what was said by another one counts no more.
"""

from collections.abc import Collection
from dataclasses import dataclass

from antiphon.types import BlockKey, Incarnation, StoreName

from .rendezvous import home_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNode:
    """One life of a store that is in the pool. `weight`: how many blocks its memory holds."""

    name: StoreName
    incarnation: Incarnation
    weight: int


class PoolMembers:
    """Mutable. `me` is there always."""

    def __init__(self, me: PoolNode) -> None:
        self.me = me.name
        self._nodes = {me.name: me}
        self._weights: dict[StoreName, float] = {me.name: float(me.weight)}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: StoreName) -> bool:
        return name in self._nodes

    @property
    def peers(self) -> Collection[PoolNode]:
        """All but this node, by name."""
        return [self._nodes[name] for name in sorted(self._nodes) if name != self.me]

    def life_of(self, name: StoreName) -> Incarnation | None:
        """Which life of that node is there; None: none is."""
        node = self._nodes.get(name)
        return None if node is None else node.incarnation

    def joined(self, node: PoolNode) -> bool:
        """It is there from now on, an earlier life of it no more; whether homes have changed: not
        if the name was here with that weight. Mutates."""
        if node.name == self.me:
            return False
        before = self._weights.get(node.name)
        self._nodes[node.name] = node
        self._weights[node.name] = float(node.weight)
        return before != float(node.weight)

    def left(self, name: StoreName, incarnation: Incarnation) -> bool:
        """That life is over; whether it was here. Mutates."""
        if name == self.me or self.life_of(name) != incarnation:
            return False
        del self._nodes[name], self._weights[name]
        return True

    def home(self, key: BlockKey) -> StoreName:
        """Where a cold block lives."""
        return home_of(key, self._weights)

    def heir(self, key: BlockKey) -> StoreName | None:
        """Where the block will live once this node is gone; None: it is alone."""
        others = {name: weight for name, weight in self._weights.items() if name != self.me}
        return home_of(key, others) if others else None
