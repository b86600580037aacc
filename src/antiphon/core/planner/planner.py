"""How many workers of each role: a floor from the forecast, a reaction to what waits, and calm.

    arrivals, lengths ─► forecast at the time when a new worker would be ready
                              │ ÷ capacity within the targets          = floor
    queues, busy shares ──────┴─► what clears the backlog in time      = reaction
                              ▼
    wanted = the larger ─► budget ─► dead band, cool-down, consolidation ─► flips, adds, drains

Laws: targets never exceed the budget nor fall below the least; constant load gives no change after
the first ones; every decision has a reason; equal observations give equal decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from antiphon.errors import BugError
from antiphon.types import Role, Seconds, Slo

from .capacity import Capacity, Shape
from .forecasters import BestForecaster
from .observation import Add, Decision, Flip, Move, Observation, PoolSeen, Take

Counts = dict[Role, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerRules:
    """How the planner behaves.

    `ready_s`: from `Add` until a worker serves. `flip_s`: the same for a flip. `headroom`: share
    that is planned above the forecast. `dead_band`: differences of so small a share of a pool are
    left alone, unless targets are missed. `cool_down_s`: how long less must be enough before a
    worker goes. `most_busy`: a pool shrinks only if those who stay are no busier than that.
    `budget`: most workers of all roles.
    """

    slo: Slo
    roles: tuple[Role, ...] = (Role.PREFILL, Role.DECODE)
    interval_s: Seconds = 15.0
    ready_s: Seconds = 60.0
    flip_s: Seconds = 5.0
    headroom: float = 0.1
    dead_band: float = 0.1
    cool_down_s: Seconds = 60.0
    most_busy: float = 0.85
    budget: int = 64
    least: int = 1

    def __post_init__(self) -> None:
        if self.budget < self.least * len(self.roles):
            raise BugError("the budget does not allow for the least of each role")


class Planner:
    """Decides at the end of each interval. `capacity`: of one worker of each role."""

    def __init__(self, rules: PlannerRules, capacity: Mapping[Role, Capacity]) -> None:
        self._rules = rules
        self._capacity = capacity
        self._ahead = max(1, ceil(rules.ready_s / rules.interval_s) + 1)
        self._rate = BestForecaster(self._ahead)
        self._input, self._output = BestForecaster(1), BestForecaster(1)
        self._less_since: dict[Role, Seconds] = {}
        """Since when fewer workers of a role have been enough."""

    def decide(self, seen: Observation) -> Decision:
        """What should be done now. Mutates: it learns from what it sees."""
        rules = self._rules
        self._rate.observe(seen.requests / rules.interval_s)
        if seen.requests:
            self._input.observe(seen.input_tokens)
            self._output.observe(seen.output_tokens)
        rate = self._rate.highest(self._ahead)
        shape = self._shape(seen)
        wanted: Counts = {}
        reasons: list[str] = []
        for role in rules.roles:
            wanted[role], reason = self._wanted(role, seen.pool(role), shape, rate)
            reasons.append(reason)
        limited = self._within_budget(wanted, shape)
        if limited != wanted:
            reasons.append(f"within the budget of {rules.budget}")
        target = {
            role: self._calmed(role, limited[role], seen.pool(role), seen) for role in rules.roles
        }
        return Decision(
            at=seen.at,
            target=tuple(target.items()),
            moves=self._moves(target, seen),
            reason=f"{rate:.3g} requests/s expected ({self._rate.name}); {'; '.join(reasons)}",
            ask_again_at=seen.at + rules.interval_s,
            wanted=tuple(wanted.items()),
        )

    # ── what is wanted ───────────────────────────────────────────────────────────────────────

    def _shape(self, seen: Observation) -> Shape:
        tokens = max(1.0, self._input.predict(1))
        return Shape(
            input_tokens=tokens,
            output_tokens=max(1.0, self._output.predict(1)),
            uncached=max(1.0, tokens * (1 - seen.hit_rate)),
        )

    def _wanted(self, role: Role, pool: PoolSeen, shape: Shape, rate: float) -> tuple[int, str]:
        rules = self._rules
        per_s = self._per_worker(role, shape)
        floor = ceil(rate * (1 + rules.headroom) / per_s) if per_s else rules.budget
        reaction = self._reaction(role, pool)
        wanted = max(rules.least, floor, reaction)
        why = f"{role.value}: {floor} for the forecast at {per_s:.3g}/s each"
        if reaction > floor:
            why += f", {reaction} to clear {pool.backlog_s:.1f} s of backlog"
        return wanted, why

    def _per_worker(self, role: Role, shape: Shape) -> float:
        capacity, slo = self._capacity[role], self._rules.slo
        match role:
            case Role.PREFILL:
                return capacity.prefill_per_s(shape, slo.ttft_s)
            case Role.DECODE:
                return capacity.decode_per_s(shape, slo.tpot_s)
            case Role.MIXED:
                return capacity.mixed_per_s(shape, slo)

    def _reaction(self, role: Role, pool: PoolSeen) -> int:
        """Workers that do what they do now, and clear what waits within an interval.

        A queue is invisible in latencies of requests that are over: here it counts as work.
        """
        if not pool.backlog_s or not pool.ready:
            return 0
        allowed_s = max(self._rules.slo.ttft_s, self._rules.interval_s)
        return ceil(pool.ready * pool.busy + pool.backlog_s / allowed_s)

    def _within_budget(self, wanted: Counts, shape: Shape) -> Counts:
        """All of it, or what serves the most with as many workers as there may be."""
        rules = self._rules
        if sum(wanted.values()) <= rules.budget:
            return dict(wanted)
        per_s = {role: self._per_worker(role, shape) for role in rules.roles}
        counts = dict.fromkeys(rules.roles, rules.least)
        for _ in range(rules.budget - sum(counts.values())):
            scarcest = min(
                rules.roles, key=lambda role: (counts[role] * per_s[role], rules.roles.index(role))
            )
            counts[scarcest] += 1
        return counts

    # ── calm ─────────────────────────────────────────────────────────────────────────────────

    def _calmed(self, role: Role, wanted: int, pool: PoolSeen, seen: Observation) -> int:
        """No more changes than are needed."""
        rules, now = self._rules, pool.workers
        if wanted >= now:
            self._less_since.pop(role, None)
            missed = seen.ttft_met < 0.9 or seen.tpot_met < 0.9
            slight = wanted - now <= rules.dead_band * now
            return now if slight and not missed and not pool.backlog_s else wanted
        since = self._less_since.setdefault(role, seen.at)
        if seen.at - since < rules.cool_down_s or pool.starting:
            return now
        fewest = max(wanted, self._fewest(pool))
        if now - fewest <= rules.dead_band * now and now - fewest < 1:
            return now
        return min(now, fewest)

    def _fewest(self, pool: PoolSeen) -> int:
        """Consolidation: the work of those who go comes to those who stay."""
        return max(1, ceil(pool.ready * pool.busy / self._rules.most_busy))

    def _moves(self, target: Counts, seen: Observation) -> tuple[Move, ...]:
        """Flips before adds and drains: they are ready sooner and cost nothing."""
        rules = self._rules
        differences = {role: target[role] - seen.pool(role).workers for role in rules.roles}
        moves: list[Move] = []
        for short in rules.roles:
            for over in rules.roles:
                count = min(differences[short], -differences[over], seen.pool(over).ready)
                if count > 0:
                    moves.append(Flip(over, short, count))
                    differences[short] -= count
                    differences[over] += count
        for role, difference in differences.items():
            if difference > 0:
                moves.append(Add(role, difference))
            elif difference < 0:
                moves.append(Take(role, -difference))
        return tuple(moves)
