"""What a drill does: its load, its faults, and when."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from antiphon.bench import Arrival
from antiphon.core.draws import Draws
from antiphon.core.faults import Crash, Stall
from antiphon.types import Seconds
from antiphon.workload import AskMix, ask, poisson


class FaultKind(StrEnum):
    """What befalls a worker's process."""

    KILL = "kill"
    """SIGKILL; the supervisor starts it anew."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT `stop_for_s` later, noticed or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """All that a drill depends on besides the cluster. Times in seconds.

    `asks` different chats are sent over and over for `duration_s`, `rate_per_s` a second on
    average; on average every `every_s` a worker is hit.
    """

    kind: FaultKind
    seed: int
    duration_s: Seconds = 60.0
    every_s: Seconds = 5.0
    stop_for_s: Seconds = 5.0
    rate_per_s: float = 2.0
    asks: int = 40
    mix: AskMix = field(default_factory=AskMix)

    @property
    def action(self) -> Crash | Stall:
        """As a fault of the common vocabulary. The supervisor decides when a killed one is back."""
        return Crash(None) if self.kind is FaultKind.KILL else Stall(self.stop_for_s)

    def arrivals(self) -> Iterator[Arrival]:
        """The load, in order of time."""
        times = takewhile(lambda at: at < self.duration_s, poisson(self.rate_per_s, self.seed))
        return (
            Arrival(at, ask(self.mix, self.seed, number % self.asks))
            for number, at in enumerate(times)
        )

    def waits(self) -> Iterator[Seconds]:
        """How long to wait before each fault: half to one and a half times `every_s`."""
        draws, number = Draws(self.seed), 0
        while True:
            yield self.every_s * draws.between(0.5, 1.5, "wait", number)
            number += 1
