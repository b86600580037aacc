"""What came one period ago: for loads that repeat, whatever their period."""

from collections import deque
from collections.abc import Sequence

_SHORTEST = 8
"""Intervals of the shortest period: one that is shorter is over before help is there."""
_LIKE = 0.4
"""A lag is a period if the series differs from itself by less than this share of what is usual."""
_RECENT = 8
"""Intervals that say how much more comes than came one period ago."""


class Seasonal:
    """Finds the period of a series and says what came one period ago, shifted to today's level.

    The period is the lag at which the smoothed series differs least from itself, relative to the
    mean of the differences at all shorter lags (the cumulative mean normalised difference of YIN,
    de Cheveigné and Kawahara 2002), after one and a half periods at the earliest. Before: the mean
    of the last values. Memory and the time of one value grow with `longest`, the longest period.
    """

    name = "seasonal"

    def __init__(self, longest: int = 240) -> None:
        self._longest = longest
        self._values: deque[float] = deque(maxlen=longest + _RECENT + 3)
        self._smooth: deque[float] = deque(maxlen=longest + _RECENT + 1)
        """Means of three, the last of them around the last value but one."""
        self._differences = [0.0] * (longest + 1)
        """By lag: mean square of how far the series is from itself, older values fading."""
        self._counts = [0] * (longest + 1)
        self._period: int | None = None

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        values = self._values
        values.append(value)
        if len(values) < 3:
            return
        newest = (values[-3] + values[-2] + values[-1]) / 3
        smooth = list(self._smooth)[::-1]
        for lag, old in enumerate(smooth[: self._longest], start=1):
            self._counts[lag] += 1
            gain = max(1 / self._counts[lag], 1 / self._longest)
            self._differences[lag] += gain * ((newest - old) ** 2 - self._differences[lag])
        self._smooth.append(newest)
        self._period = self._found()

    def _found(self) -> int | None:
        """The lag that is most like a period, if one is."""
        total, best, least = 0.0, None, _LIKE
        for lag in range(1, self._longest + 1):
            count, difference = self._counts[lag], self._differences[lag]
            if count < max(lag / 2, _RECENT):  # of longer lags there is even less
                break
            total += difference
            if lag < _SHORTEST or total <= 0:
                continue
            like = difference * lag / total
            if like < least:
                best, least = lag, like
        return best

    def predict(self, steps: int) -> float:
        """See `Forecaster`."""
        values, period = self._values, self._period
        if not values:
            return 0.0
        if period is None:
            recent = list(values)[-3:]
            return sum(recent) / len(recent)
        smooth = list(self._smooth)
        shift = _mean(smooth[-_RECENT:]) - _mean(smooth[-_RECENT - period : -period])
        back = period * -(-steps // period) - steps
        # `back` intervals before the last value; the last smoothed one is around the last but one.
        return smooth[-max(1, back)] + shift


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
