"""The order in which blocks go where only a part of them is at home: copies teach nothing.

A policy learns from how blocks are used where they live. What a node has for its own workers beside
(blocks that are on their way home, copies that were just read) comes and is used at once, and goes:
in the policy's eyes a flood of blocks that are wanted again right away. So it is not told of them.
They go least recently used first, among themselves; before the others if they are more than their
share.
"""

from collections.abc import Callable

from antiphon.core.tiers import EvictionPolicy
from antiphon.types import BlockKey

FOREIGN_SHARE = 0.25
"""Of a tenant's blocks on a node: what others are home to may be so many without going first."""


class SpreadPolicy:
    """Implements `EvictionPolicy`. `is_home`: whether a block lives here while it is cold."""

    def __init__(self, policy: EvictionPolicy, is_home: Callable[[BlockKey], bool]) -> None:
        self._policy = policy
        self._is_home = is_home
        self._at_home = 0
        self._foreign: dict[BlockKey, None] = {}
        self._idle: dict[BlockKey, None] = {}
        """Those of the foreign ones that may go, the one that was used longest ago first."""

    def add(self, key: BlockKey, position: int) -> None:
        """See `EvictionPolicy`."""
        if self._is_home(key):
            self._at_home += 1
            self._policy.add(key, position)
        else:
            self._foreign[key] = None

    def use(self, key: BlockKey) -> None:
        """See `EvictionPolicy`. What has become at home here is learned from now on."""
        if key not in self._foreign:
            self._policy.use(key)
            return
        idle = key in self._idle
        self._idle.pop(key, None)
        if self._is_home(key):
            del self._foreign[key]
            self.add(key, 0)
        if idle:
            self.idle(key)

    def idle(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        if key in self._foreign:
            self._idle[key] = None
        else:
            self._policy.idle(key)

    def busy(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        if key in self._foreign:
            self._idle.pop(key, None)
        else:
            self._policy.busy(key)

    def victim(self) -> BlockKey | None:
        """See `EvictionPolicy`."""
        foreign = next(iter(self._idle), None)
        most = FOREIGN_SHARE * (len(self._foreign) + self._at_home)
        if foreign is not None and len(self._foreign) > most:
            return foreign
        own = self._policy.victim()
        return own if own is not None else foreign

    def remove(self, key: BlockKey, *, evicted: bool) -> None:
        """See `EvictionPolicy`."""
        if key in self._foreign:
            del self._foreign[key]
            self._idle.pop(key, None)
        else:
            self._at_home -= 1
            self._policy.remove(key, evicted=evicted)
