"""Fault schedules: what a person plans to go wrong, and the fixed list of faults that it means.

    entries ("every 30 s or so, kill a random worker") ─ expand(seed) ─► faults at their times

A schedule speaks of processes, links and the store as an operator sees them; the actions are those
of `fault`, and a few more that only whole processes, links and files have. The choice among several
workers is fixed too, as an order of preference: who is hit is the first of it who can be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import inf
from typing import TypeAlias

from antiphon.core.draws import Draws
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.types import Role, Seconds

from .fault import At, Corrupt, Crash, Cut, FillDisk, Node, Slow, Stall, When

GATEWAY: Node = "gateway"
STORE: Node = "store"
MOST_FAULTS = 100_000
"""Of one entry."""


@dataclass(frozen=True, slots=True)
class Resume:
    """A process that was stalled goes on, earlier than its stall says."""


@dataclass(frozen=True, slots=True)
class Lag:
    """For a while, all that passes on a link arrives later."""

    by_s: Seconds
    for_s: Seconds


@dataclass(frozen=True, slots=True)
class Drain:
    """A worker is taken out in order, and put back later."""

    for_s: Seconds


@dataclass(frozen=True, slots=True)
class Restart:
    """A process is ended in order, and started anew."""


@dataclass(frozen=True, slots=True)
class Garble:
    """Bytes that nobody has sent come on the stream between a worker and its gateway."""


@dataclass(frozen=True, slots=True)
class CutKv:
    """The TCP streams between a worker and workers and stores of other hosts break: pages of KV
    that are on their way are lost, and what was said of leases."""


@dataclass(frozen=True, slots=True)
class GarbleKv:
    """Bytes that nobody has sent come on those streams."""


ScheduledAction: TypeAlias = (
    Crash
    | Stall
    | Resume
    | Slow
    | Cut
    | Garble
    | CutKv
    | GarbleKv
    | Lag
    | Corrupt
    | FillDisk
    | Drain
    | Restart
)

ACTION_NAMES: dict[type, str] = {
    Crash: "kill",
    Stall: "stop",
    Resume: "resume",
    Slow: "slow",
    Cut: "cut",
    Garble: "garble",
    CutKv: "cut-kv",
    GarbleKv: "garble-kv",
    Lag: "delay",
    Corrupt: "corrupt",
    FillDisk: "fill-disk",
    Drain: "drain",
    Restart: "restart",
}
"""What operators call them."""


@dataclass(frozen=True, slots=True)
class AnyWorker:
    """Some worker, of this role if one is named."""

    role: Role | None = None


Target: TypeAlias = Node | AnyWorker
"""One process by its name, or whoever comes first in an order of preference."""


@dataclass(frozen=True, slots=True)
class Every:
    """Again and again: after `period_s`, each time up to `jitter` of it sooner or later.

    `count` None: as long as the run lasts.
    """

    period_s: Seconds
    jitter: float = 0.0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """What a person wrote down once, and what may happen many times."""

    trigger: At | Every | When
    target: Target
    action: ScheduledAction


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """All that is planned. Every choice that it leaves open is drawn from `seed`."""

    seed: int
    entries: tuple[ScheduleEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """One fault that is to happen. `entry`: where it comes from, counted from 1. `once`: it is all
    that the entry asks for, not one of many."""

    number: int
    entry: int
    trigger: At | When
    target: Target
    action: ScheduledAction
    once: bool


def check_times(schedule: FaultSchedule, duration_s: Seconds) -> None:
    """Raises `UsageError` for an entry whose time is after the end of the load."""
    for place, entry in enumerate(schedule.entries, start=1):
        if isinstance(entry.trigger, At) and entry.trigger.seconds >= duration_s:
            raise UsageError(
                f"fault {place}: at: {number_text(entry.trigger.seconds)} s is after the load, "
                f"which lasts {number_text(duration_s)} s: make its duration longer, or the fault "
                "earlier"
            )


def expand(schedule: FaultSchedule, duration_s: Seconds) -> tuple[ScheduledFault, ...]:
    """The faults of a run that lasts `duration_s`: in order of time, then those set off by events.

    Pure: the same arguments give the same faults. An entry's times do not depend on other entries.
    Raises `UsageError` if there are more than `MOST_FAULTS`.
    """
    drawn: list[tuple[At | When, int, ScheduleEntry]] = []
    for place, entry in enumerate(schedule.entries, start=1):
        match entry.trigger:
            case Every() as every:
                if duration_s / every.period_s > MOST_FAULTS:
                    raise UsageError(
                        f"fault {place}: every {number_text(every.period_s)} s for "
                        f"{number_text(duration_s)} s is more "
                        f"than {MOST_FAULTS} faults: make every longer, or the run shorter"
                    )
                times = _times(every, Draws(schedule.seed), place, duration_s)
                drawn += [(At(time), place, entry) for time in times]
            case At(seconds) as at:
                drawn += [(at, place, entry)] if seconds < duration_s else []
            case When() as when:
                drawn.append((when, place, entry))
    drawn.sort(key=lambda one: (one[0].seconds if isinstance(one[0], At) else inf, one[1]))
    return tuple(
        ScheduledFault(
            number=number,
            entry=place,
            trigger=trigger,
            target=entry.target,
            action=entry.action,
            once=not isinstance(entry.trigger, Every),
        )
        for number, (trigger, place, entry) in enumerate(drawn)
    )


def _times(every: Every, draws: Draws, place: int, duration_s: Seconds) -> Iterator[Seconds]:
    at: Seconds = 0.0
    for number in islice(count(), every.count):
        factor = draws.between(1.0 - every.jitter, 1.0 + every.jitter, "wait", place, number)
        at += every.period_s * factor
        if at >= duration_s:
            return
        yield at


def preference(seed: int, fault: ScheduledFault, workers: Sequence[Node]) -> tuple[Node, ...]:
    """These workers, whom the fault should rather hit first. Their order does not matter, nor who
    else is there: with one of them gone, the others keep their places."""
    draws = Draws(seed)
    place = {name: draws.fraction("victim", fault.number, name) for name in workers}
    return tuple(sorted(place, key=lambda name: (place[name], name)))
