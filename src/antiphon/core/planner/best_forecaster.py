"""The way to tell what comes that was right lately."""

from collections import deque
from collections.abc import Sequence

from .forecasters import Autoregression, Forecaster, Holt, LastValue, LocalTrend

_CHECKS = 4
"""Fewer say nothing of how good a forecast is."""

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
        self._said: deque[tuple[float, ...]] = deque(maxlen=ahead)
        """What each way has said of the next intervals, the next one first."""
        self._errors = [deque[float](maxlen=window) for _ in self._ways]
        self._best = 0

    @property
    def name(self) -> str:
        """Of the way that is best now."""
        return self._ways[self._best].name

    @property
    def error(self) -> float | None:
        """How far off the best way was lately, mean; None before it was checked some times."""
        errors = self._errors[self._best]
        return _mean(errors) if len(errors) >= _CHECKS else None

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        if len(self._said) == self._ahead:
            for errors, said in zip(self._errors, self._said[0], strict=True):
                errors.append(abs(said - value))
        for way in self._ways:
            way.observe(value)
        self._said.append(tuple(max(0.0, way.predict(self._ahead)) for way in self._ways))
        self._best = min(
            range(len(self._ways)), key=lambda number: (_mean(self._errors[number]), number)
        )

    def predict(self, steps: int) -> float:
        """See `Forecaster`; never below 0."""
        return max(0.0, self._ways[self._best].predict(steps))

    def highest(self, steps: int) -> float:
        """The highest of the next `steps` values."""
        return max(self.predict(step) for step in range(1, steps + 1))


def _mean(errors: deque[float]) -> float:
    return sum(errors) / len(errors) if errors else 0.0
