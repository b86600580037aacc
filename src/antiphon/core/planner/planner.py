"""How many workers of each role: a floor from the forecast, a reaction to what waits, and calm.

    arrivals, lengths ─► forecast until a new worker would be ready
                              │ at capacity within the targets             = floor
    queues, sequences in work ┴─► what clears them in time (Little)        = reaction
                              ▼
    the larger ─► budget, shared ─► dead band, cool-down, consolidation ─► flips, adds, drains

Laws: the target never exceeds the budget nor falls below the least; constant load gives no change
after the first ones; every decision has a reason; equal observations give equal decisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, sqrt

from antiphon.errors import UsageError
from antiphon.types import Role

from .best_forecaster import BestForecaster
from .calm import Calm
from .capacity import Capacity
from .decision import Decision
from .need import Load, Need, need_of
from .observation import Observation, PoolSeen
from .pace import Pace
from .rules import PlannerRules
from .sharing import moves, share, targets
from .start_time import StartTime
from .usual import Usual

_LARGEST = 1e9
"""Whatever is larger was not measured."""
_CHANCE = 0.84
"""Standard deviations that one in five of normal values exceeds: as far as `short` looks."""
_MOST_SHORT = 0.35
"""Of the forecast. More in hand, against a load that nobody can foresee, serves hardly more."""
_CHANCE_SIZE = 0.8
"""Standard deviations that normal values are off by, mean."""
_SHARE = 0.2
"""Of an interval: a start that takes so much longer than some intervals takes as many."""
_SURPRISE = 2.0
"""So many standard deviations above the forecast, an interval is no chance."""


class Planner:
    """Decides at the end of each interval. `capacity`: of one worker of each role.

    `history`: requests a second of intervals before the first one, the oldest first, where somebody
    has kept them: a planner that knows the last rise asks for workers before the next.

    Raises `UsageError` if the budget has no room for the least.
    """

    def __init__(
        self,
        rules: PlannerRules,
        capacity: Mapping[Role, Capacity],
        *,
        history: Sequence[float] = (),
    ) -> None:
        missing = [role.value for role in rules.roles if role not in capacity]
        if missing:
            raise UsageError(f"no capacity is known of {', '.join(missing)} workers")
        self._rules = rules
        self._capacity = {role: capacity[role] for role in rules.roles}
        self._devices = {role: capacity[role].devices for role in rules.roles}
        least = rules.least * sum(self._devices.values())
        if rules.budget < least:
            raise UsageError(
                f"budget = {rules.budget}: the least workers of all roles need {least} devices"
            )
        self._start = StartTime(rules.ready_s)
        self._rate = BestForecaster(self._ahead)
        for per_s in history:
            self._rate.observe(_number(per_s))
        self._usual = Usual()
        self._pace = {role: Pace(role) for role in rules.roles}
        self._calm = {role: Calm(rules) for role in rules.roles}

    def decide(self, seen: Observation) -> Decision:
        """What should be done now. Mutates: it learns from what it sees."""
        seen = _measured(seen)
        load = self._learn(seen)
        rules = replace(self._rules, ready_s=self._start.seconds)
        needs = {role: self._need(role, seen.pool(role), load, rules) for role in rules.roles}
        wanted = {role: need.workers for role, need in needs.items()}
        limited = share(wanted, rules.least, rules.budget, self._devices)
        settled = {
            role: self._calm[role].settle(
                seen.at,
                seen.pool(role),
                replace(
                    needs[role],
                    workers=limited[role],
                    enough=needs[role].enough if limited == wanted else limited[role],
                ),
                load.expected_per_s,
                rules.ready_s,
            )
            for role in rules.roles
        }
        target = targets(settled, seen, rules.budget, self._devices)
        return Decision(
            at=seen.at,
            target=tuple(target.items()),
            wanted=tuple(wanted.items()),
            moves=tuple(moves(target, seen, rules.budget, self._devices)),
            expected_per_s=load.expected_per_s,
            reason=self._reason(load, needs, limited == wanted),
            ask_again_at=seen.at + rules.interval_s,
        )

    @property
    def _ahead(self) -> int:
        """In how many intervals a worker that is added now would serve."""
        intervals = self._start.seconds / self._rules.interval_s
        return max(0, ceil(intervals - _SHARE)) + 1

    def _learn(self, seen: Observation) -> Load:
        self._start.observe(seen.starts_s)
        self._rate.look(self._ahead)
        now_per_s = _number(seen.requests / seen.seconds) if seen.seconds > 0 else 0.0
        if seen.seconds > 0:
            self._rate.observe(now_per_s)
            self._usual.observe(seen)
        shape = self._usual.shape
        for role, pace in self._pace.items():
            pace.observe(seen.pool(role), seen.seconds, shape, self._capacity[role])
        seconds = seen.seconds or self._rules.interval_s
        # Counts are off by their root (Poisson): queues, and not rates, are sized for that.
        sure_per_s = now_per_s - _SURPRISE * sqrt(now_per_s / seconds)
        expected_per_s = max(self._rate.highest(self._ahead), sure_per_s)
        chance_per_s = sqrt(expected_per_s / seconds)
        return Load(
            now_per_s=now_per_s,
            expected_per_s=expected_per_s,
            later_per_s=max(expected_per_s, self._rate.highest(2 * self._ahead)),
            short_per_s=min(
                max(0.0, self._rate.short - _CHANCE * chance_per_s), _MOST_SHORT * expected_per_s
            ),
            error_per_s=_beyond(self._rate.error, _CHANCE_SIZE * chance_per_s),
            seconds=seconds,
            shape=shape,
        )

    def _need(self, role: Role, pool: PoolSeen, load: Load, rules: PlannerRules) -> Need:
        capacity = self._capacity[role].at_pace(self._pace[role].slower)
        return need_of(role, pool, load, capacity, rules)

    def _reason(self, load: Load, needs: Mapping[Role, Need], within: bool) -> str:
        parts = [f"{load.expected_per_s:.3g} requests/s expected ({self._rate.name})"]
        parts += [need.why for need in needs.values()]
        if not within:
            parts.append(f"shared within the budget of {self._rules.budget}")
        return "; ".join(parts)


def _beyond(error: float | None, chance: float) -> float | None:
    """The part of an error that is not chance, as the two are independent."""
    return None if error is None else sqrt(max(0.0, error**2 - chance**2))


def _measured(seen: Observation) -> Observation:
    """Numbers that can't be one count as nothing; lengths of nothing are left to `Usual`."""
    return replace(
        seen,
        seconds=_number(seen.seconds),
        requests=_number(seen.requests),
        input_tokens=_number(seen.input_tokens),
        output_tokens=_number(seen.output_tokens),
        hit_rate=min(1.0, _number(seen.hit_rate)),
        input_variation=_number(seen.input_variation),
        pools=tuple(
            replace(
                pool,
                held=_number(pool.held),
                queued=_number(pool.queued),
                queued_tokens=_number(pool.queued_tokens),
                running=_number(pool.running),
                busy_s=_number(pool.busy_s),
                steps=_number(pool.steps),
                tokens=_number(pool.tokens),
            )
            for pool in seen.pools
        ),
    )


def _number(value: float) -> float:
    return value if 0 <= value <= _LARGEST else 0.0
