"""What the next values of a series will be: ways to tell.

A series has a value an interval. No way looks further back than its window, so memory is bounded.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from .least_squares import solve


class Forecaster(Protocol):
    """Learns from values in order. `name` says which way it is, in reasons."""

    name: str

    def observe(self, value: float) -> None:
        """Mutates: the value of the interval that is over."""
        ...

    def predict(self, steps: int) -> float:
        """The value `steps` (at least 1) intervals from the last one; 0 before any."""
        ...


class LastValue:
    """Things stay as they are."""

    name = "constant"

    def __init__(self) -> None:
        self._value = 0.0

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        self._value = value

    def predict(self, steps: int) -> float:
        """See `Forecaster`."""
        return self._value


class FadingMean:
    """Things stay as they are, give or take: a mean in which older values fade by `weight`."""

    name = "mean"

    def __init__(self, weight: float = 0.2) -> None:
        self._weight = weight
        self._mean = 0.0
        self._seen = 0

    def observe(self, value: float) -> None:
        """See `Forecaster`. The first values weigh equally."""
        self._seen += 1
        self._mean += max(self._weight, 1 / self._seen) * (value - self._mean)

    def predict(self, steps: int) -> float:
        """See `Forecaster`."""
        return self._mean


class Holt:
    """A level and a trend, smoothed; below 1, `damping` lets the trend die out.

    Holt 1957; damped: Gardner and McKenzie 1985.
    """

    name = "holt"

    def __init__(self, level: float = 0.5, trend: float = 0.3, damping: float = 0.95) -> None:
        self._alpha, self._beta, self._damping = level, trend, damping
        self._level: float | None = None
        self._trend = 0.0

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        if self._level is None:
            self._level = value
            return
        before, trend = self._level, self._damping * self._trend
        self._level = before + trend + self._alpha * (value - before - trend)
        self._trend = trend + self._beta * (self._level - before - trend)

    def predict(self, steps: int) -> float:
        """See `Forecaster`."""
        if self._level is None:
            return 0.0
        return self._level + self._trend * sum(self._damping**step for step in range(1, steps + 1))


class LocalTrend:
    """A Kalman filter of a level and a slope that both wander (Harvey 1989, §2.3).

    `level_noise`, `slope_noise`, `noise`: variances of what moves them and of what is seen, of
    which only the proportions matter. Dynamo's planner has these proportions.
    """

    def __init__(
        self,
        level_noise: float = 1.0,
        slope_noise: float = 0.1,
        noise: float = 10.0,
        name: str = "kalman",
    ) -> None:
        self.name = name
        self._q_level, self._q_slope, self._r = level_noise, slope_noise, noise
        self._level: float | None = None
        self._slope = 0.0
        self._p = (1e3, 0.0, 1e3)
        """Variance of the level, covariance, variance of the slope."""

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        if self._level is None:
            self._level = value
            return
        level = self._level + self._slope
        a, b, c = self._p
        a, b, c = a + 2 * b + c + self._q_level, b + c, c + self._q_slope
        gain = a + self._r
        off = value - level
        self._level, self._slope = level + a / gain * off, self._slope + b / gain * off
        self._p = (a - a * a / gain, b - a * b / gain, c - b * b / gain)

    def predict(self, steps: int) -> float:
        """See `Forecaster`."""
        return 0.0 if self._level is None else self._level + steps * self._slope


class Autoregression:
    """Each value is a sum of the `order` before it, fitted to the last `window` by least squares.

    Values are taken from their mean. Two terms follow a sine of any period exactly; more of them
    follow noise less. Predicts no further than half of what it has seen beyond its extremes.
    """

    name = "ar"

    def __init__(self, order: int = 6, window: int = 80, ridge: float = 1e-6) -> None:
        self._order, self._ridge = order, ridge
        self._values: deque[float] = deque(maxlen=window)
        self._weights: Sequence[float] | None = None
        """Fitted when they are asked for; None: not since the last value."""

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        self._values.append(value)
        self._weights = None

    def predict(self, steps: int) -> float:
        """See `Forecaster`. Before there is enough to fit: the last value."""
        values, order = self._values, self._order
        if len(values) < 3 * order:
            return values[-1] if values else 0.0
        mean, lowest, highest = sum(values) / len(values), min(values), max(values)
        beyond = (highest - lowest) / 2
        offsets = [value - mean for value in values]
        if self._weights is None:
            rows = [offsets[at : at + order] for at in range(len(offsets) - order)]
            self._weights = solve(rows, offsets[order:], ridge=self._ridge)
        recent = offsets[-order:]
        for _ in range(steps):
            following = sum(map(float.__mul__, self._weights, recent))
            following = min(max(following, lowest - beyond - mean), highest + beyond - mean)
            recent = [*recent[1:], following]
        return mean + recent[-1]
