"""Loads that change, as virtual sessions: Poisson arrivals at a rate that is a function of time."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, log, pi

from antiphon.core.draws import Draws
from antiphon.sim.fleet import TokenSession, TokenTurn
from antiphon.sim.fleet.token_sessions import VOCAB_SIZE
from antiphon.types import TokenId

_DIGITS = 3
KINDS = ("sine", "constant", "step", "two steps", "spikes")
_STEPS = {
    "step": ((0.0, 0.2), (0.25, 0.8)),
    "two steps": ((0.0, 0.1), (0.2, 0.5), (0.4, 1.0), (0.75, 0.3)),
    "spikes": ((0.0, 0.3), (0.2, 0.7), (0.25, 0.3), (0.6, 0.9), (0.68, 0.3)),
}
"""Parts of a period from which on the rate is at that part of its range."""


@dataclass(frozen=True)
class VaryingLoad:
    """From `low_per_s` to `high_per_s` within each period, and back.

    `sine`: lowest at second 0, highest half a period later. Others stay at one rate for a while.
    No two prompts share a block.
    """

    kind: str = "sine"
    low_per_s: float = 5.0
    high_per_s: float = 45.0
    period_s: float = 600.0
    periods: int = 3
    input_tokens: int = 3000
    output_tokens: int = 300

    @property
    def duration_s(self) -> float:
        return self.period_s * self.periods

    @property
    def mean_per_s(self) -> float:
        parts = 200
        return sum(self.per_s(self.period_s * (n + 0.5) / parts) for n in range(parts)) / parts

    def per_s(self, at_s: float) -> float:
        """The rate at that time."""
        part = at_s / self.period_s % 1.0
        match self.kind:
            case "sine":
                share = (1 - cos(2 * pi * part)) / 2
            case "constant":
                share = 0.5
            case _:
                share = max(step for step in _STEPS[self.kind] if step[0] <= part)[1]
        return self.low_per_s + (self.high_per_s - self.low_per_s) * share

    def times(self, seed: int) -> Iterator[float]:
        """When calls come. By thinning (Lewis and Shedler 1979)."""
        draws = Draws(seed)
        at_s, number = 0.0, 0
        while True:
            at_s -= log(1 - draws.fraction("gap", number)) / self.high_per_s
            if at_s >= self.duration_s:
                return
            if draws.fraction("kept", number) * self.high_per_s < self.per_s(at_s):
                yield at_s
            number += 1

    def sessions(self, seed: int) -> Iterator[TokenSession]:
        """One call each."""
        filler = tuple(1 + place % (VOCAB_SIZE - 1) for place in range(self.input_tokens))
        for number, at_s in enumerate(self.times(seed)):
            prompt = _spelt(number) + filler[_DIGITS:]
            yield TokenSession(at_s, number, (TokenTurn((prompt,), self.output_tokens),))

    def rates(self, seed: int, interval_s: float) -> Sequence[float]:
        """Calls a second of each interval, as somebody who watched has written them down."""
        ends = [interval_s * (n + 1) for n in range(int(self.duration_s / interval_s))]
        counts = [0] * (len(ends) + 1)
        for at_s in self.times(seed):
            counts[bisect_right(ends, at_s)] += 1
        return [count / interval_s for count in counts[:-1]]


def _spelt(number: int) -> tuple[TokenId, ...]:
    base = VOCAB_SIZE - 1
    return tuple(1 + number // base**place % base for place in range(_DIGITS))
