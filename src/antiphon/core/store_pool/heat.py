"""How often blocks are read, lately: a count that halves in a set time.

    value(t) = value(t0) * 2 ** -((t - t0) / half_life) + 1 at each hit

A block that is hit r times a second settles at r * half_life / ln 2.
"""

from math import log

from antiphon.types import BlockKey, Seconds

MOST_KEYS = 2**16
"""Of more, those that were not hit for longest are forgotten."""


class Heat:
    """Mutable. `now` never runs backwards."""

    def __init__(self, half_life_s: Seconds, most_keys: int = MOST_KEYS) -> None:
        self._half_life_s = half_life_s
        self._most_keys = most_keys
        self._hits: dict[BlockKey, tuple[float, Seconds]] = {}

    def __len__(self) -> int:
        return len(self._hits)

    def hit(self, key: BlockKey, now: Seconds) -> None:
        """Somebody reads it. Mutates."""
        value = self._value(key, now)
        self._hits.pop(key, None)
        if len(self._hits) >= self._most_keys:
            del self._hits[next(iter(self._hits))]
        self._hits[key] = (value + 1, now)

    def hits_per_s(self, key: BlockKey, now: Seconds) -> float:
        """Lately. Does not mutate."""
        return self._value(key, now) * log(2) / self._half_life_s

    def _value(self, key: BlockKey, now: Seconds) -> float:
        value, at = self._hits.get(key, (0.0, now))
        return value * 2 ** -((now - at) / self._half_life_s)
