"""When a pool changes: more at once, less only when it is sure, and no mistake twice."""

from antiphon.types import Role, Seconds

from .need import Need
from .observation import PoolSeen
from .rules import PlannerRules


class Calm:
    """Of one role. Growth is asked for once; what goes must not have to come back.

    A worker goes when fewer were enough, with the dead band and the forecast's error in hand, at
    each of the decisions of `cool_down_s`. If a queue then says that it was needed, though no more
    came than before, no closed form explains it: for `memory_s` none is taken at that load. So a
    constant load sees at most one worker too few, once in that time.
    """

    def __init__(self, role: Role, rules: PlannerRules) -> None:
        self._role, self._rules = role, rules
        self._enough: list[int] = []
        """Of the decisions since `_since`, all of which would have done with fewer."""
        self._since: Seconds = 0.0
        self._taken_at_per_s: float | None = None
        """The load at which a worker went last; None once the load has gone beyond it."""
        self._mistake: tuple[float, Seconds] | None = None
        """A load at which none is to go, and until when."""

    def settle(self, at: Seconds, pool: PoolSeen, need: Need, per_s: float) -> int:
        """How many workers of the role there should be now. Mutates."""
        if need.workers > pool.workers:
            self._enough.clear()
            self._learn(at, need, per_s)
            return need.workers
        own = pool.workers - pool.pinned
        if need.enough >= own or pool.starting or pool.cold or self._was_mistaken(at, per_s):
            self._enough.clear()
            return pool.workers
        if not self._enough:
            self._since = at
        self._enough.append(need.enough)
        if at - self._since < self._rules.cool_down_s:
            return pool.workers
        stay = max(self._enough)
        self._enough.clear()
        self._taken_at_per_s = per_s
        return stay + pool.pinned

    def _learn(self, at: Seconds, need: Need, per_s: float) -> None:
        taken = self._taken_at_per_s
        if taken is None:
            return
        if per_s > taken * (1 + self._rules.dead_band):
            self._taken_at_per_s = None
        elif need.by_queue:
            self._mistake = (per_s, at + self._rules.memory_s)

    def _was_mistaken(self, at: Seconds, per_s: float) -> bool:
        if self._mistake is None:
            return False
        load, until = self._mistake
        return at < until and per_s * (1 + self._rules.dead_band) >= load
