"""How long a worker takes from being asked for until it serves, learned from those that came."""

from collections.abc import Iterable

from antiphon.types import Seconds

_WEIGHT = 0.2
"""Of the newest one in a mean; the first ones weigh more."""
_DEVIATIONS = 2.0
"""So many mean deviations above the mean are said: nearly no start takes longer."""
_LONGEST_S: Seconds = 86400.0
"""Whatever is longer was not measured."""


class StartTime:
    """`seconds` is what was told, until a start was seen. Then: the mean of the last ones and their
    mean deviation, as Jacobson (1988, "Congestion Avoidance and Control", appendix A) follows
    round trips.
    """

    def __init__(self, told_s: Seconds) -> None:
        self._told_s = told_s
        self._mean_s = self._deviation_s = 0.0
        self._measured = 0

    @property
    def seconds(self) -> Seconds:
        """What the next one is taken to take."""
        if not self._measured:
            return self._told_s
        return self._mean_s + _DEVIATIONS * self._deviation_s

    def observe(self, starts_s: Iterable[Seconds]) -> None:
        """Mutates."""
        for start_s in starts_s:
            if not 0 <= start_s <= _LONGEST_S:
                continue
            self._measured += 1
            weight, off_s = max(_WEIGHT, 1 / self._measured), start_s - self._mean_s
            if self._measured > 1:
                self._deviation_s += weight * (abs(off_s) - self._deviation_s)
            self._mean_s += weight * off_s
