"""How attainment at one rate changes with the tightness of the targets (DistServe, OSDI 2024, §6).

A run's calls can be judged by any targets afterwards, so the whole curve comes from the same calls,
and the tightest scale that holds is exact: each call has the smallest scale that it would meet, and
the answer is a percentile of these. (A server that is told its targets and acts on them would have
to be run anew at each scale.)
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from antiphon.errors import UsageError
from antiphon.types import CallRecord, Seconds

from .attainment import GOAL, Attainment
from .estimate import Z95, Estimate, with_rank_interval
from .search_rules import RunAt
from .verdict import Slos, needed_scale, scaled_all, slo_of

DEFAULT_SCALES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """The attainment when all targets are `scale` times as long."""

    scale: float
    attainment: Attainment


@dataclass(frozen=True, slots=True, kw_only=True)
class SloScale:
    """What was found at one rate.

    `tightest`: the smallest scale at which the share `goal` of calls meets both targets, with its
    interval; inf: no scale helps, as too many calls failed. `curve`: in order of the scales.
    """

    rate_per_s: float
    goal: float
    tightest: Estimate
    curve: tuple[ScalePoint, ...]
    calls: int
    runs: int


def scale_curve(
    records: Sequence[CallRecord], slos: Slos, scales: Iterable[float]
) -> tuple[ScalePoint, ...]:
    """The same calls, judged by scaled targets; in order of the scales."""
    return tuple(
        ScalePoint(scale, Attainment.of(records, scaled_all(slos, scale)))
        for scale in sorted(scales)
    )


def tightest_scale(
    records: Iterable[CallRecord], slos: Slos, *, goal: float = GOAL, z: float = Z95
) -> Estimate:
    """The smallest scale at which at least `goal` of the calls meet both targets.

    Exact: at that scale they do, at any smaller one they don't. The interval is a percentile's
    (`percentile_estimate`), for which calls come in the order in which they were due, run after
    run. Of no calls: inf, and anything is possible.
    """
    by_class = dict(slos)
    in_order = [needed_scale(record, slo_of(record.slo_class, by_class)) for record in records]
    if not in_order:
        return Estimate(math.inf, 0.0, math.inf)
    needed, count = sorted(in_order), len(in_order)
    enough = math.ceil(goal * count)
    if (enough - 1) / count >= goal:
        enough -= 1
    value = needed[max(enough, 1) - 1]
    return with_rank_interval(value, in_order, goal, z)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRules:
    """What to measure, and when it is enough. Raises `UsageError` if it makes no sense.

    `tolerance`: how wide, relative to the scale, its interval may be at the end.
    """

    rate_per_s: float
    run_s: Seconds = 60.0
    most_runs: int = 3
    goal: float = GOAL
    tolerance: float = 0.05
    scales: tuple[float, ...] = DEFAULT_SCALES
    z: float = Z95

    def __post_init__(self) -> None:
        for name in ("rate_per_s", "run_s", "most_runs", "tolerance", "z"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} {getattr(self, name)}: it must be a positive number")
        if not 0 < self.goal < 1:
            raise UsageError(f"goal {self.goal}: it must be a share between 0 and 1, as 0.9")
        for scale in self.scales:
            if not 0 < scale < math.inf:
                raise UsageError(f"scales: {scale} is no positive number, such as 0.5")


class SloScaleSearch:
    """Asks for runs at one rate until the tightest scale is known well enough."""

    def __init__(self, rules: ScaleRules, slos: Slos) -> None:
        self._rules = rules
        self._slos = tuple(slos)
        self._runs: list[tuple[CallRecord, ...]] = []

    def next(self) -> RunAt | SloScale:
        """What to run next, or the result. Does not mutate."""
        if len(self._runs) < self._rules.most_runs and not self._is_settled():
            return RunAt(self._rules.rate_per_s, self._rules.run_s)
        return self.result()

    def observe(self, records: Iterable[CallRecord]) -> None:
        """One run's calls, without its warm-up, in any order. Mutates."""
        self._runs.append(tuple(sorted(records, key=lambda record: record.due_at_s)))

    def result(self) -> SloScale:
        """What is known by now. Does not mutate."""
        return SloScale(
            rate_per_s=self._rules.rate_per_s,
            goal=self._rules.goal,
            tightest=self._tightest(),
            curve=self._curve(),
            calls=sum(map(len, self._runs)),
            runs=len(self._runs),
        )

    def _tightest(self) -> Estimate:
        return tightest_scale(
            chain.from_iterable(self._runs),
            self._slos,
            goal=self._rules.goal,
            z=self._rules.z,
        )

    def _curve(self) -> tuple[ScalePoint, ...]:
        """Run by run, so that calls of different runs do not count as neighbours."""
        curves = [scale_curve(run, self._slos, self._rules.scales) for run in self._runs]
        return tuple(
            ScalePoint(scale, sum((curve[at].attainment for curve in curves), Attainment()))
            for at, scale in enumerate(sorted(self._rules.scales))
        )

    def _is_settled(self) -> bool:
        tightest = self._tightest()
        if math.isinf(tightest.high):
            return math.isinf(tightest.low)
        return tightest.high - tightest.low <= self._rules.tolerance * tightest.value
