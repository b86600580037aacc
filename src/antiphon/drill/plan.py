"""What a drill does: its load, its faults, and when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from antiphon.core.faults import (
    GATEWAY,
    AnyWorker,
    Corrupt,
    Crash,
    Cut,
    Every,
    FaultSchedule,
    FillDisk,
    Lag,
    ScheduledFault,
    ScheduleEntry,
    Stall,
    check_times,
    expand,
)
from antiphon.types import Seconds, Slo
from antiphon.workload import AskMix, ask, poisson

from .open_loop import Arrival

_JITTER = 0.5
_SLO = Slo(ttft_s=2.0, tpot_s=0.1)
"""As the router's own targets, unless it is told others."""


class FaultKind(StrEnum):
    """What befalls workers in a drill without a plan."""

    KILL = "kill"
    """SIGKILL; the supervisor starts it anew."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT later, noticed or not."""
    MIXED = "mixed"
    """Each in its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The chats that are sent. `asks` different ones over and over for `duration_s`, `rate_per_s` a
    second on average. `slo`: what each is to be answered within, to count as goodput.
    `undisturbed`: all of it comes without faults first, for goodput to be compared with.
    """

    duration_s: Seconds = 60.0
    rate_per_s: float = 2.0
    asks: int = 40
    mix: AskMix = field(default_factory=AskMix)
    slo: Slo = _SLO
    undisturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """All that a drill depends on besides the cluster. Its seed is the schedule's."""

    schedule: FaultSchedule
    load: Load = field(default_factory=Load)

    @property
    def seed(self) -> int:
        """What chats, arrivals and faults are drawn from."""
        return self.schedule.seed

    @property
    def needs_proxy(self) -> bool:
        """Something befalls the clients' connections."""
        return any(
            isinstance(entry.action, Lag | Cut) and entry.target == GATEWAY
            for entry in self.schedule.entries
        )

    @property
    def needs_disk(self) -> bool:
        """Something befalls what the store has on disk."""
        return any(isinstance(entry.action, Corrupt | FillDisk) for entry in self.schedule.entries)

    def faults(self) -> tuple[ScheduledFault, ...]:
        """In order. Raises `UsageError` if there are too many, or one comes after the load."""
        check_times(self.schedule, self.load.duration_s)
        return expand(self.schedule, self.load.duration_s)

    def arrivals(self) -> Iterator[Arrival]:
        """The load, in order of time."""
        load = self.load
        times = takewhile(lambda at: at < load.duration_s, poisson(load.rate_per_s, self.seed))
        return (
            Arrival(at, ask(load.mix, self.seed, number % load.asks))
            for number, at in enumerate(times)
        )


def random_faults(
    kind: FaultKind, *, seed: int, every_s: Seconds, stop_for_s: Seconds
) -> FaultSchedule:
    """On average every `every_s`, a random worker: half to one and a half times that in between."""
    actions: Sequence[Crash | Stall] = {
        FaultKind.KILL: (Crash(None),),
        FaultKind.STOP: (Stall(stop_for_s),),
        FaultKind.MIXED: (Crash(None), Stall(stop_for_s)),
    }[kind]
    every = Every(every_s * len(actions), _JITTER)
    return FaultSchedule(
        seed, tuple(ScheduleEntry(every, AnyWorker(), action) for action in actions)
    )
