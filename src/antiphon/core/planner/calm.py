"""When a pool changes: more at once, less only when it is sure, and no mistake twice."""

from collections import deque

from antiphon.types import Seconds

from .need import Need
from .observation import PoolSeen
from .rules import PlannerRules

_BANDS = 2.0
"""Loads that are so many dead bands apart are the same load, to memory."""


class Calm:
    """Of one role. Growth is asked for once; what goes must not have to come back.

    A worker goes when fewer were enough, with the dead band and the forecast's error in hand, at
    each of the decisions of the last `cool_down_s`. If a size that was given up is needed again, it
    is kept for `memory_s` at that load: chance, or something that no closed form knows, has asked
    for it. So a pool that a constant load keeps near the edge between two sizes goes down, comes
    back, and stays.
    """

    def __init__(self, rules: PlannerRules) -> None:
        self._rules = rules
        self._enough: deque[tuple[Seconds, int]] = deque()
        """When which size was enough: the decisions of `cool_down_s`, and the one before them."""
        self._given_up = 0
        """The largest size that was given up."""
        self._waits_since: Seconds | None = None
        """Since when too much waits, with nobody coming to help."""
        self._needed: dict[int, tuple[float, Seconds]] = {}
        """Sizes that were given up and needed again: at which load, and until when that counts."""

    def settle(
        self,
        at: Seconds,
        pool: PoolSeen,
        need: Need,
        per_s: float,
        ready_s: Seconds | None = None,
    ) -> int:
        """How many workers of the role there should be now. Mutates.

        One that is added serves in `ready_s`; None: as the rules say.
        """
        ready_s = self._rules.ready_s if ready_s is None else ready_s
        now = pool.workers
        wanted = max(need.workers, self._impatient(at, pool, need, ready_s))
        if wanted > now:
            self._enough.clear()
            # What a queue asks for beyond the next size is for the queue, not for the load.
            needed = min(wanted, max(need.floor, now + 1), self._given_up)
            for size in range(now + 1, needed + 1):
                self._needed[size] = (per_s, at + self._rules.memory_s)
            return wanted
        enough = max(need.enough + pool.pinned, self._remembered(at, now, per_s))
        if enough >= now or pool.starting or pool.cold:
            self._enough.clear()
            return now
        self._enough.append((at, enough))
        if at - self._enough[0][0] < self._rules.cool_down_s:
            return now
        while len(self._enough) > 1 and at - self._enough[1][0] >= self._rules.cool_down_s:
            self._enough.popleft()
        stay = min(now, max(size for _, size in self._enough))
        if stay < now:
            self._given_up = max(self._given_up, now)
        return stay

    def _impatient(self, at: Seconds, pool: PoolSeen, need: Need, ready_s: Seconds) -> int:
        """One more than there are, if a queue that was to be gone is still there; else 0.

        What is believed of the workers' pace must be wrong: a queue that stands still tells so.
        """
        if not need.waits or pool.starting or pool.cold:
            self._waits_since = None
            return 0
        if self._waits_since is None:
            self._waits_since = at
        if at - self._waits_since < ready_s + self._rules.clear_s:
            return 0
        self._waits_since = None
        return pool.workers + 1

    def _remembered(self, at: Seconds, now: int, per_s: float) -> int:
        """The largest size, of those that there are, that this load has needed before."""
        self._needed = {size: one for size, one in self._needed.items() if at < one[1]}
        reach = per_s * (1 + _BANDS * self._rules.dead_band)
        return max(
            (size for size, (load, _) in self._needed.items() if size <= now and reach >= load),
            default=0,
        )
