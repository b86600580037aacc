"""Least recently used first (LRU): what everything else is measured against."""

from antiphon.types import BlockKey

from .ranked_keys import RankedKeys


class LeastRecent:
    """Blocks go in the order of their last use; a block that was never used, of its coming."""

    def __init__(self, *, lag: float = 0.0) -> None:
        """`lag`: by how many uses a block counts as older than the one before it in its chain: as
        chains lie on several nodes, none can see that another block continues its own; so the
        blocks of a prompt that was used as one go from its end on all the same."""
        self._uses = 0
        self._lag = lag
        self._lags: dict[BlockKey, float] = {}
        self._last_use: dict[BlockKey, float] = {}
        self._idle = RankedKeys()

    def add(self, key: BlockKey, position: int) -> None:
        """See `EvictionPolicy`."""
        self._lags[key] = self._lag * position
        self._touch(key)

    def use(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        self._touch(key)
        if key in self._idle:
            self._idle.put(key, self._last_use[key])

    def idle(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        self._idle.put(key, self._last_use[key])

    def busy(self, key: BlockKey) -> None:
        """See `EvictionPolicy`."""
        self._idle.discard(key)

    def victim(self) -> BlockKey | None:
        """See `EvictionPolicy`."""
        return self._idle.lowest()

    def remove(self, key: BlockKey, *, evicted: bool) -> None:
        """See `EvictionPolicy`."""
        self._idle.discard(key)
        del self._last_use[key], self._lags[key]

    def _touch(self, key: BlockKey) -> None:
        self._uses += 1
        self._last_use[key] = self._uses - self._lags[key]
