"""Several workloads at once, each with its share of the sessions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from antiphon.core.draws import Draws
from antiphon.errors import UsageError

from ..numbering import numbered
from ..sessions import Session, Workload

NAME = "mix"
_MOST_PARTS = 32


@dataclass(frozen=True, slots=True)
class Mix:
    """Sessions of several workloads in random order, by share; each keeps its own class.

    Shares are relative to their sum. Ends when one of the parts does.
    """

    parts: tuple[tuple[Workload, float], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= _MOST_PARTS:
            raise UsageError(f"{NAME}: must have from 1 to {_MOST_PARTS} parts")
        if any(not 0 < share < math.inf for _, share in self.parts):
            raise UsageError(f"{NAME}: every share must be above 0: leave out what is not wanted")

    @property
    def description(self) -> str:
        """See `Workload`."""
        total = sum(share for _, share in self.parts)
        parts = (f"{share / total:.0%} {part.description}" for part, share in self.parts)
        return f"{NAME}: {'; '.join(parts)}"

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Parts have seeds of their own, so that no two say the same."""
        return numbered(self._sessions(seed))

    def _sessions(self, seed: int) -> Iterator[Session]:
        draws = Draws(seed)
        sources = [
            part.sessions(draws.below(2**62, NAME, "seed", place))
            for place, (part, _) in enumerate(self.parts)
        ]
        for number in count():
            session = next(sources[self._drawn(draws, number)], None)
            if session is None:
                return
            yield session

    def _drawn(self, draws: Draws, number: int) -> int:
        mass = draws.fraction(NAME, number) * sum(share for _, share in self.parts)
        for place, (_, share) in enumerate(self.parts):
            mass -= share
            if mass < 0:
                return place
        return len(self.parts) - 1
