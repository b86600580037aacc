"""When sessions begin: open loop, so that a slow server does not slow its users down.

    poisson                        independent users
    constant                       one after another at equal distances
    bursts:cv=2                    gamma-distributed gaps: their deviation is `cv` times their mean
    bursts:on=5s,off=10s           Poisson for `on`, silence for `off`, again and again
    sine:low=1,high=5,period=60s   a Poisson process whose rate swings, as by day and night
    trace:speed=2                  the times of the trace or file itself (see `timed`)

All but the last are endless, and functions of their seed alone.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Protocol, TypeAlias, runtime_checkable

from antiphon.core.draws import Draws
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.types import Seconds

from .chance import gamma
from .number_text import duration_text
from .options import Option, check

MOST_PER_S = 1e6
LEAST_PER_S = 1e-6
_Rate: TypeAlias = Annotated[
    float, Option("sessions a second on average", low=LEAST_PER_S, high=MOST_PER_S)
]


@runtime_checkable
class Arrivals(Protocol):
    """A point process of known mean rate."""

    @property
    def rate_per_s(self) -> float:
        """Arrivals a second, on average over a long time."""
        ...

    @property
    def description(self) -> str:
        """A phrase for whoever reads a report."""
        ...

    def times(self, seed: int) -> Iterator[Seconds]:
        """Seconds since the start, in order, without end."""
        ...

    def at_rate(self, rate_per_s: float) -> "Arrivals":
        """The same pattern with another mean rate. Raises `UsageError` for none above 0."""
        ...


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users: gaps are exponential."""

    rate_per_s: _Rate

    def __post_init__(self) -> None:
        check(self, "arrivals poisson")

    @property
    def description(self) -> str:
        """See `Arrivals`."""
        return f"Poisson, {number_text(self.rate_per_s)}/s"

    def times(self, seed: int) -> Iterator[Seconds]:
        """See `Arrivals`."""
        return poisson(self.rate_per_s, seed)

    def at_rate(self, rate_per_s: float) -> "Poisson":
        """See `Arrivals`."""
        return replace(self, rate_per_s=rate_per_s)


@dataclass(frozen=True, slots=True)
class Constant:
    """Equal gaps, the first arrival at 0. The seed means nothing."""

    rate_per_s: _Rate

    def __post_init__(self) -> None:
        check(self, "arrivals constant")

    @property
    def description(self) -> str:
        """See `Arrivals`."""
        return f"constant, {number_text(self.rate_per_s)}/s"

    def times(self, seed: int) -> Iterator[Seconds]:
        """See `Arrivals`."""
        return (number / self.rate_per_s for number in count())

    def at_rate(self, rate_per_s: float) -> "Constant":
        """See `Arrivals`."""
        return replace(self, rate_per_s=rate_per_s)


@dataclass(frozen=True, slots=True)
class GammaBursts:
    """Gamma-distributed gaps. A `cv` of 1 is Poisson, more is burstier, less is more regular."""

    rate_per_s: _Rate
    cv: Annotated[
        float, Option("deviation of the gaps over their mean; 1 is Poisson", low=0.05, high=20)
    ]

    def __post_init__(self) -> None:
        check(self, "arrivals bursts")

    @property
    def description(self) -> str:
        """See `Arrivals`."""
        return f"gamma gaps of CV {number_text(self.cv)}, {number_text(self.rate_per_s)}/s"

    def times(self, seed: int) -> Iterator[Seconds]:
        """See `Arrivals`."""
        draws, now = Draws(seed), 0.0
        shape = self.cv**-2
        for number in count():
            now += gamma(shape, draws, "gap", number) / (shape * self.rate_per_s)
            yield now

    def at_rate(self, rate_per_s: float) -> "GammaBursts":
        """See `Arrivals`."""
        return replace(self, rate_per_s=rate_per_s)


@dataclass(frozen=True, slots=True)
class OnOff:
    """Poisson arrivals for `on_s`, none for `off_s`, and so on. The rate counts both."""

    rate_per_s: _Rate
    on_s: Annotated[Seconds, Option("how long a burst takes", low=1e-3, high=86400)]
    off_s: Annotated[Seconds, Option("the silence after it", low=0, high=86400)]

    def __post_init__(self) -> None:
        check(self, "arrivals bursts")

    @property
    def description(self) -> str:
        """See `Arrivals`."""
        on, off = duration_text(self.on_s), duration_text(self.off_s)
        return (
            f"bursts of {on} after silences of {off}, {number_text(self.rate_per_s)}/s on average"
        )

    def times(self, seed: int) -> Iterator[Seconds]:
        """See `Arrivals`. A Poisson process in a time that stands still during silences."""
        period_s = self.on_s + self.off_s
        for at_s in poisson(self.rate_per_s * period_s / self.on_s, seed):
            bursts, within_s = divmod(at_s, self.on_s)
            yield bursts * period_s + within_s

    def at_rate(self, rate_per_s: float) -> "OnOff":
        """See `Arrivals`. Bursts stay as long as they are, with more or fewer arrivals in them."""
        return replace(self, rate_per_s=rate_per_s)


@dataclass(frozen=True, slots=True)
class Sine:
    """A Poisson process whose rate starts in the middle, rises to `high`, falls to `low`, …"""

    low_per_s: Annotated[float, Option("the lowest rate", low=0, high=MOST_PER_S)]
    high_per_s: Annotated[float, Option("the highest rate", low=LEAST_PER_S, high=MOST_PER_S)]
    period_s: Annotated[Seconds, Option("from one peak to the next", low=1e-3, high=30 * 86400)]

    def __post_init__(self) -> None:
        check(self, "arrivals sine")
        if self.low_per_s > self.high_per_s:
            raise UsageError(
                f"arrivals sine: low must be at most high ({number_text(self.high_per_s)}), "
                f"not {number_text(self.low_per_s)}"
            )

    @property
    def rate_per_s(self) -> float:
        """The mean over whole periods."""
        return (self.low_per_s + self.high_per_s) / 2

    @property
    def description(self) -> str:
        """See `Arrivals`."""
        return (
            f"Poisson swinging from {number_text(self.low_per_s)}/s to "
            f"{number_text(self.high_per_s)}/s "
            f"every {duration_text(self.period_s)}"
        )

    def rate_at(self, at_s: Seconds) -> float:
        """Arrivals a second at that moment."""
        swing = (self.high_per_s - self.low_per_s) / 2
        return self.rate_per_s + swing * math.sin(2 * math.pi * at_s / self.period_s)

    def times(self, seed: int) -> Iterator[Seconds]:
        """See `Arrivals`. By thinning a process of the highest rate (Lewis and Shedler, 1979)."""
        draws = Draws(seed)
        for number, at_s in enumerate(poisson(self.high_per_s, seed)):
            if draws.fraction("keep", number) * self.high_per_s < self.rate_at(at_s):
                yield at_s

    def at_rate(self, rate_per_s: float) -> "Sine":
        """See `Arrivals`. The swing grows with the rate; the period stays."""
        factor = Poisson(rate_per_s).rate_per_s / self.rate_per_s
        return replace(self, low_per_s=self.low_per_s * factor, high_per_s=self.high_per_s * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTimes:
    """When the trace or file says, at another speed or, if it is given, sped up to a mean rate."""

    speed: Annotated[float, Option("how many times as fast as it was", low=1e-6, high=1e6)] = 1.0
    rate_per_s: Annotated[
        float | None, Option("sessions a second on average", low=LEAST_PER_S, high=MOST_PER_S)
    ] = None

    def __post_init__(self) -> None:
        check(self, "arrivals trace")
        if self.rate_per_s is not None and self.speed != 1.0:
            raise UsageError("arrivals trace: speed and rate exclude each other: give one")

    @property
    def description(self) -> str:
        """See `Arrivals`."""
        if self.rate_per_s is not None:
            return f"the trace's own times, scaled to {number_text(self.rate_per_s)}/s"
        faster = f", {number_text(self.speed)}x" if self.speed != 1 else ""
        return f"the trace's own times{faster}"

    def at_rate(self, rate_per_s: float) -> "OwnTimes":
        """See `Arrivals`."""
        return OwnTimes(rate_per_s=rate_per_s)


def poisson(rate_per_s: float, seed: int) -> Iterator[Seconds]:
    """Times since the start of a Poisson process, without end.

    Raises `ValueError` unless the rate is above 0.
    """
    if not rate_per_s > 0:
        raise ValueError(f"the rate must be above 0 requests a second, but is {rate_per_s}")
    return _poisson(rate_per_s, seed)


def _poisson(rate_per_s: float, seed: int) -> Iterator[Seconds]:
    draws, now = Draws(seed), 0.0
    for number in count():
        now += -math.log1p(-draws.fraction("arrival", number)) / rate_per_s
        yield now
