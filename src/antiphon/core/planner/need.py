"""How many workers of one role are needed: for what is forecast, and for what waits already."""

from dataclasses import dataclass
from math import ceil

from antiphon.types import Role, Seconds

from .capacity import Capacity, Shape
from .observation import PoolSeen
from .rules import PlannerRules

_ERRORS = 1.0
"""So many mean errors of the forecast are kept in hand before a worker goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes. `now_per_s`: in the last interval. `expected_per_s`: the highest of the forecast.

    `later_per_s`: the highest until a worker that goes now could have gone and come back.
    `short_per_s`: how far above the forecast the load may well be, beyond chance.
    `error_per_s`: how far off the forecast was lately, mean; None, nobody knows yet.
    """

    now_per_s: float
    expected_per_s: float
    later_per_s: float
    short_per_s: float
    error_per_s: float | None
    seconds: Seconds
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """`workers`: with fewer, targets will be missed. `enough`: no fewer may stay, if some go.

    Between the two a pool is left as it is. `floor`: what the forecast alone needs. `waits`: more
    than would be gone within the target.
    """

    workers: int
    enough: int
    why: str
    floor: int = 0
    waits: bool = False


def need_of(
    role: Role, pool: PoolSeen, load: Load, capacity: Capacity, rules: PlannerRules
) -> Need:
    """Of workers that have this capacity. Never more than the budget has room for."""
    most = rules.budget // capacity.devices
    rate = load.expected_per_s + max(rules.headroom * load.expected_per_s, load.short_per_s)
    floor = capacity.workers(role, rate, load.shape, rules.slo, most)
    calm = most
    if load.error_per_s is not None:
        spare = max(rules.dead_band * load.later_per_s, _ERRORS * load.error_per_s)
        later = rate + load.later_per_s - load.expected_per_s
        calm = capacity.workers(role, later + spare, load.shape, rules.slo, most)
    reaction, stay = _reaction(role, pool, load, capacity, rules)
    reaction = min(reaction, most)
    why = f"{role}: {floor} for the forecast"
    if (slower := f"{capacity.slower:.2f}") != "1.00":
        why += f" at {slower} times the profile's times"
    if reaction > floor:
        why += (
            f", {reaction} for {pool.held + pool.queued:.0f} queued and {pool.running:.0f} in work"
        )
    workers = max(rules.least, floor, reaction)
    return Need(
        workers=workers,
        enough=max(workers, min(most, max(calm, stay))),
        why=why,
        floor=floor,
        waits=reaction > 0,
    )


def _reaction(
    role: Role, pool: PoolSeen, load: Load, capacity: Capacity, rules: PlannerRules
) -> tuple[int, int]:
    """Workers for what is there already; and how many have to stay for it.

    A queue is invisible in the latencies of requests that are over: it counts as work. Places are
    counted by Little's law: whoever decodes too slowly stays longer, and more are in work.
    """
    prompts = _for_prompts(role, pool, load, capacity, rules)
    answers = _for_answers(pool, load, capacity, rules)
    match role:
        case Role.PREFILL:
            return prompts
        case Role.DECODE:
            return answers
        case Role.MIXED:
            return max(prompts[0], answers[0]), max(prompts[1], answers[1])


def _for_prompts(
    role: Role, pool: PoolSeen, load: Load, capacity: Capacity, rules: PlannerRules
) -> tuple[int, int]:
    """A queue that is over within the target is none.

    A longer one has to be gone `clear_s` after a worker that is added now would serve.
    """
    shape, service_s = load.shape, capacity.occupied_s(load.shape)
    backlog_s = (pool.held + pool.queued_tokens / shape.uncached) * service_s
    allowed_s = max(0.0, rules.slo.ttft_s - capacity.prefill_s(shape))
    each_s = service_s
    if role is Role.MIXED:
        each_s = 1 / (capacity.mixed_per_s(shape, rules.slo) or 1 / service_s)
    react = 0
    if backlog_s > pool.ready * allowed_s:
        react = _up(load.now_per_s * each_s + backlog_s / _span_s(rules))
    stay = _up(backlog_s / allowed_s) if allowed_s else pool.ready
    if role is Role.PREFILL:
        stay = max(stay, _up(pool.busy_s / load.seconds / rules.most_busy))
    return react, stay


def _for_answers(
    pool: PoolSeen, load: Load, capacity: Capacity, rules: PlannerRules
) -> tuple[int, int]:
    """As many places as there are sequences, give or take the dead band.

    Who has no place within the target, in work or not, is a queue: each needs a place for as long
    as it decodes, some time in the span in which a queue of prompts has to go. (A pool that is
    short of places fills up: to count each sequence as if it stayed would ask for far too many.)
    """
    places = capacity.places(load.shape, rules.slo.tpot_s)
    room = places * max(1, pool.ready)
    seated, waiting = min(pool.running, room), pool.queued + pool.held
    waiting += pool.running - seated
    react = 0
    if waiting > rules.dead_band * room:
        stay_s = capacity.stay_s(load.shape, places)
        react = _up((seated + waiting * min(1.0, stay_s / _span_s(rules))) / places)
    return react, _up((seated + waiting) / (places * rules.most_busy))


def _span_s(rules: PlannerRules) -> Seconds:
    return rules.ready_s + rules.clear_s


def _up(workers: float) -> int:
    """Rounded up; what no fleet has is a large number."""
    return ceil(min(workers, 1e9))
