"""What the next values of a series will be: four ways, and the one that was right lately.

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


class Holt:
    """A level and a trend, smoothed; the trend dies out (Gardner and McKenzie 1985)."""

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
        before, expected = self._level, self._level + self._damping * self._trend
        self._level = expected + self._alpha * (value - expected)
        step = self._level - before
        self._trend = self._damping * self._trend + self._beta * (
            step - self._damping * self._trend
        )

    def predict(self, steps: int) -> float:
        """See `Forecaster`."""
        if self._level is None:
            return 0.0
        share = sum(self._damping**step for step in range(1, steps + 1))
        return self._level + share * self._trend


class LocalTrend:
    """A Kalman filter of a level and a slope that both wander (Harvey 1989, §2.3).

    `level_noise`, `slope_noise`, `noise`: variances of what moves them and of what is seen, of
    which only the proportions matter. Dynamo's planner has these proportions.
    """

    name = "kalman"

    def __init__(
        self, level_noise: float = 1.0, slope_noise: float = 0.1, noise: float = 10.0
    ) -> None:
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
    """Each value is a sum of the `order` before it and a constant, fitted to the last `window`.

    Least squares with a little ridge. Two terms follow a sine of any period exactly; more follow
    noise in it. Predicts no further than twice what it has seen.
    """

    name = "ar"

    def __init__(self, order: int = 4, window: int = 80, ridge: float = 1e-3) -> None:
        self._order, self._ridge = order, ridge
        self._values: deque[float] = deque(maxlen=window)

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        self._values.append(value)

    def predict(self, steps: int) -> float:
        """See `Forecaster`. Before there is enough to fit: the last value."""
        values = list(self._values)
        if len(values) < 3 * self._order:
            return values[-1] if values else 0.0
        weights = self._fit(values)
        highest = 2 * max(values)
        for _ in range(steps):
            row = (*values[-self._order :], 1.0)
            following = sum(weight * value for weight, value in zip(weights, row, strict=True))
            values.append(min(max(following, 0.0), highest))
        return values[-1]

    def _fit(self, values: Sequence[float]) -> Sequence[float]:
        order = self._order
        rows = [(*values[i : i + order], 1.0) for i in range(len(values) - order)]
        return solve(rows, values[order:], ridge=self._ridge)


STANDARD_FORECASTERS = (LastValue, Holt, LocalTrend, Autoregression)


class BestForecaster:
    """Whichever way was closest lately: a rolling back-test `ahead` intervals ahead.

    Each way predicts at each interval; when the time has come, its error counts. The mean of the
    last `window` absolute errors decides, then the order of `ways`.
    """

    def __init__(
        self,
        ahead: int,
        *,
        ways: Sequence[Forecaster] | None = None,
        window: int = 20,
    ) -> None:
        self._ways = tuple(ways) if ways is not None else tuple(w() for w in STANDARD_FORECASTERS)
        self._ahead = ahead
        self._promised: deque[tuple[float, ...]] = deque(maxlen=ahead)
        """What each way has said of the next intervals, the next one first."""
        self._errors = [deque[float](maxlen=window) for _ in self._ways]

    @property
    def name(self) -> str:
        """Of the way that is best now."""
        return self._best.name

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        if len(self._promised) == self._ahead:
            for errors, said in zip(self._errors, self._promised[0], strict=True):
                errors.append(abs(said - value))
        for way in self._ways:
            way.observe(value)
        self._promised.append(tuple(way.predict(self._ahead) for way in self._ways))

    def predict(self, steps: int) -> float:
        """See `Forecaster`; never below 0."""
        return max(0.0, self._best.predict(steps))

    def highest(self, steps: int) -> float:
        """The highest of the next `steps` values."""
        best = self._best
        return max(0.0, *(best.predict(step) for step in range(1, steps + 1)))

    @property
    def _best(self) -> Forecaster:
        means = [sum(errors) / len(errors) if errors else 0.0 for errors in self._errors]
        return self._ways[min(range(len(means)), key=lambda number: (means[number], number))]
