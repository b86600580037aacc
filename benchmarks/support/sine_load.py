"""A load that rises and falls, as virtual sessions: a Poisson process whose rate is a sine."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import cos, log, pi

from antiphon.core.draws import Draws
from antiphon.sim.fleet import TokenSession, TokenTurn
from antiphon.sim.fleet.token_sessions import VOCAB_SIZE
from antiphon.types import TokenId

_DIGITS = 3


@dataclass(frozen=True)
class SineLoad:
    """From `low_per_s` at second 0 to `high_per_s` half a period later, and back.

    No two prompts share a block.
    """

    low_per_s: float = 5.0
    high_per_s: float = 45.0
    period_s: float = 600.0
    periods: int = 2
    input_tokens: int = 3000
    output_tokens: int = 300

    @property
    def duration_s(self) -> float:
        return self.period_s * self.periods

    def per_s(self, at_s: float) -> float:
        """The rate at that time."""
        middle, swing = (self.high_per_s + self.low_per_s) / 2, self.high_per_s - self.low_per_s
        return middle - swing / 2 * cos(2 * pi * at_s / self.period_s)

    def sessions(self, seed: int) -> Iterator[TokenSession]:
        """One call each. By thinning (Lewis and Shedler 1979)."""
        draws = Draws(seed)
        filler = tuple(1 + place % (VOCAB_SIZE - 1) for place in range(self.input_tokens))
        at_s, number = 0.0, 0
        while True:
            at_s -= log(1 - draws.fraction("gap", number)) / self.high_per_s
            if at_s >= self.duration_s:
                return
            if draws.fraction("kept", number) * self.high_per_s < self.per_s(at_s):
                prompt = _spelt(number) + filler[_DIGITS:]
                yield TokenSession(at_s, number, (TokenTurn((prompt,), self.output_tokens),))
            number += 1


def _spelt(number: int) -> tuple[TokenId, ...]:
    base = VOCAB_SIZE - 1
    return tuple(1 + number // base**place % base for place in range(_DIGITS))
