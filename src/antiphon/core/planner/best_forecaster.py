"""The way to tell what comes that was right lately."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from .forecasters import Autoregression, FadingMean, Forecaster, Holt, LastValue, LocalTrend
from .seasonal import Seasonal

_CHECKS = 4
"""Fewer say nothing of how good a forecast is."""
_BEYOND = 0.2
"""`short`: share of lately's values that were further above the forecast."""


def quick_trend() -> LocalTrend:
    """A slope that may turn at any time: follows a rise from its first intervals on."""
    return LocalTrend(level_noise=0.0, slope_noise=1.0, noise=10.0, name="quick kalman")


STANDARD_FORECASTERS: Sequence[Callable[[], Forecaster]] = (
    LastValue,
    FadingMean,
    Holt,
    LocalTrend,
    quick_trend,
    Autoregression,
    Seasonal,
)


class BestForecaster:
    """Whichever way was closest lately: a rolling back-test `ahead` intervals ahead.

    Each way predicts at each interval; when the time has come, its error counts. The mean of the
    last `window` absolute errors decides, then the order of `ways`. Until there are some, the
    errors one interval ahead stand in: a rise must not have to last as long as a worker takes to
    start before anybody believes in it.
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
        self._next: tuple[float, ...] = ()
        """What each way has said of the next interval alone."""
        self._errors = [deque[float](maxlen=window) for _ in self._ways]
        """By way, in order: how far above what was said the value was."""
        self._first_errors = [deque[float](maxlen=window) for _ in self._ways]
        """The same, one interval ahead."""
        self._best = 0

    @property
    def name(self) -> str:
        """Of the way that is best now."""
        return self._ways[self._best].name

    @property
    def error(self) -> float | None:
        """How far off the best way was lately, mean; None before it was checked some times."""
        errors = self._errors[self._best]
        return _size(errors) if len(errors) >= _CHECKS else None

    @property
    def short(self) -> float:
        """How far values were above what the best way said of them: one in five was further.

        Of a whole window: before there is one, as if the forecast had been right.
        """
        errors = self._errors[self._best]
        assert errors.maxlen is not None
        beyond = int(_BEYOND * errors.maxlen)
        ranked = sorted(errors, reverse=True)
        return max(0.0, ranked[beyond]) if len(ranked) > beyond else 0.0

    def look(self, ahead: int) -> None:
        """From now on so many intervals ahead. Mutates. Errors that are known stay, and fade."""
        if ahead != self._ahead:
            self._ahead, self._said = ahead, deque(maxlen=ahead)

    def observe(self, value: float) -> None:
        """See `Forecaster`."""
        for errors, said in zip(self._first_errors, self._next, strict=False):
            errors.append(value - said)
        if len(self._said) == self._ahead:
            for errors, said in zip(self._errors, self._said[0], strict=True):
                errors.append(value - said)
        for way in self._ways:
            way.observe(value)
        self._said.append(tuple(max(0.0, way.predict(self._ahead)) for way in self._ways))
        self._next = tuple(max(0.0, way.predict(1)) for way in self._ways)
        errors = self._errors if len(self._errors[0]) >= _CHECKS else self._first_errors
        self._best = min(range(len(self._ways)), key=lambda way: (_size(errors[way]), way))

    def predict(self, steps: int) -> float:
        """See `Forecaster`; never below 0."""
        return max(0.0, self._ways[self._best].predict(steps))

    def highest(self, steps: int) -> float:
        """The highest of the next `steps` values."""
        return max(self.predict(step) for step in range(1, steps + 1))


def _size(errors: Iterable[float]) -> float:
    """The mean of their absolute values; 0 of none."""
    sizes = [abs(error) for error in errors]
    return sum(sizes) / len(sizes) if sizes else 0.0
