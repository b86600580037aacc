"""When a pool changes: more at once, less only when it is sure, and no mistake twice."""

from antiphon.types import Seconds

from .need import Need
from .observation import PoolSeen
from .rules import PlannerRules

_BANDS = 2.0
"""Loads that are so many dead bands apart are the same load, to memory."""


class Calm:
    """Of one role. Growth is asked for once; what goes must not have to come back.

    A worker goes when fewer were enough, with the dead band and the forecast's error in hand, at
    each of the decisions of `cool_down_s`. If a size that was given up is needed again, it is kept
    for `memory_s` at that load: chance, or something that no closed form knows, has asked for it.
    So a pool that a constant load keeps near the edge between two sizes goes down, comes back, and
    stays.
    """

    def __init__(self, rules: PlannerRules) -> None:
        self._rules = rules
        self._enough: list[int] = []
        """Of the decisions since `_since`, all of which would have done with fewer."""
        self._since: Seconds = 0.0
        self._given_up = 0
        """The largest size that was given up."""
        self._needed: dict[int, tuple[float, Seconds]] = {}
        """Sizes that were given up and needed again: at which load, and until when that counts."""

    def settle(self, at: Seconds, pool: PoolSeen, need: Need, per_s: float) -> int:
        """How many workers of the role there should be now. Mutates."""
        now = pool.workers
        if need.workers > now:
            self._enough.clear()
            for size in range(now + 1, min(need.workers, self._given_up) + 1):
                self._needed[size] = (per_s, at + self._rules.memory_s)
            return need.workers
        enough = max(need.enough + pool.pinned, self._remembered(at, now, per_s))
        if enough >= now or pool.starting or pool.cold:
            self._enough.clear()
            return now
        if not self._enough:
            self._since = at
        self._enough.append(enough)
        if at - self._since < self._rules.cool_down_s:
            return now
        stay = max(self._enough)
        self._enough.clear()
        self._given_up = max(self._given_up, now)
        return stay

    def _remembered(self, at: Seconds, now: int, per_s: float) -> int:
        """The largest size, of those that there are, that this load has needed before."""
        self._needed = {size: one for size, one in self._needed.items() if at < one[1]}
        reach = per_s * (1 + _BANDS * self._rules.dead_band)
        return max(
            (size for size, (load, _) in self._needed.items() if size <= now and reach >= load),
            default=0,
        )
