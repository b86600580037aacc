"""The search for goodput: the highest rate at which enough calls meet their targets.

    rate    1 ── 2 ── 4 ── 8           doubled while it passes (halved while it fails), in smaller
                      │    └ fails     steps first if `growth` says so
                      └─ 5.7 ── …      then the middle of the bracket, in log rate,
                           └ fails     until its ends are within the tolerance

A rate is measured in runs, whose calls are added up. It is settled, and measured no more, once
Wilson's interval is clear of the goal on either side, or its runs are spent: then the point
estimate decides. The rates that the result rests on are measured at least twice.

Noise may make attainment seem to rise with the rate. It can't, so neighbours in the wrong order are
taken together until it falls (`falling_fit`); what passes is read off that curve. A rate that is
measured again may so move the bracket back, and the search goes on from there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.errors import BugError

from .attainment import Attainment
from .falling_fit import falling_fit
from .goodput import Goodput, Probe, StopReason
from .search_rules import RunAt, SearchRules

_MOST_SQUARES = 8
"""No number gets too large, and any step worth taking has reached 2 by then."""
_CONFIRMATION_RUNS = 2
"""Runs of either end of the bracket before it is believed, if a rate may have so many."""


@dataclass(slots=True)
class _Measured:
    """What is known of one rate."""

    runs: int = 0
    attainment: Attainment = field(default_factory=Attainment)


class GoodputSearch:
    """Asks for runs, hears what came of them, and says what goodput is. It always ends.

    The driver runs what `next` asks for and reports by `observe`. `result` may be asked any time,
    so that a search that is broken off has been worth something.
    """

    def __init__(self, rules: SearchRules) -> None:
        self._rules = rules
        self._measured: dict[float, _Measured] = {}
        self._empty_run = False

    def next(self) -> RunAt | Goodput:
        """What to run next, or the result. Does not mutate."""
        step = self._step()
        if isinstance(step, StopReason):
            return self._goodput(step)
        wanted_s = max(self._rules.run_s, self._rules.least_calls / step)
        return RunAt(step, min(wanted_s, self._rules.longest_run_s))

    def observe(self, rate_per_s: float, attainment: Attainment) -> None:
        """One run's calls at that rate, without its warm-up. Mutates.

        Usually it is the rate that `next` named; any other within the bounds is taken as well, such
        as those of an earlier search. Raises `BugError` outside them.
        """
        if not self._rules.lowest_per_s <= rate_per_s <= self._rules.highest_per_s:
            raise BugError(f"a run at {rate_per_s}/s, outside the search's bounds")
        if attainment.calls == 0:
            self._empty_run = True
            return
        measured = self._measured.setdefault(rate_per_s, _Measured())
        measured.runs += 1
        measured.attainment += attainment

    def result(self) -> Goodput:
        """What is known by now. Does not mutate."""
        step = self._step()
        return self._goodput(step if isinstance(step, StopReason) else StopReason.UNFINISHED)

    def _step(self) -> float | StopReason:
        """The rate to measure next, or why there is none."""
        if self._empty_run:
            return StopReason.NO_CALLS
        low, high = _bracket(self._probes())
        step = self._unsettled(low, high) or self._onward(low, high)
        if isinstance(step, StopReason):
            step = self._unconfirmed(low, high) or step
        if isinstance(step, StopReason):
            return step
        runs = sum(measured.runs for measured in self._measured.values())
        return step if runs < self._rules.most_runs else StopReason.OUT_OF_RUNS

    def _onward(self, low: Probe | None, high: Probe | None) -> float | StopReason:
        """A rate not measured yet, or that there is no need of one."""
        rules = self._rules
        match low, high:
            case None, None:
                return rules.start_per_s
            case Probe(rate_per_s=passes), None:
                beyond = min(passes * self._step_beyond(), rules.highest_per_s)
                return beyond if beyond > passes else StopReason.ALL_PASS
            case None, Probe(rate_per_s=fails):
                beyond = max(fails / self._step_beyond(), rules.lowest_per_s)
                return beyond if beyond < fails else StopReason.ALL_FAIL
            case Probe(rate_per_s=passes), Probe(rate_per_s=fails):
                if fails <= passes * (1 + rules.tolerance):
                    return StopReason.FOUND
                return _four_digits(math.sqrt(passes * fails))

    def _step_beyond(self) -> float:
        """From the last of rates that all pass, or all fail, to the next."""
        steps = min(len(self._measured), _MOST_SQUARES)
        return min(2.0, self._rules.growth ** (2 ** (steps - 1)))

    def _unsettled(self, low: Probe | None, high: Probe | None) -> float | None:
        """An end of the bracket about which more runs could still say something."""
        for end in (high, low):
            if end is not None and end.runs < self._rules.runs_per_rate:
                enough = end.attainment.calls >= self._rules.least_calls
                share = end.attainment.both(self._rules.z)
                if not (enough and share.excludes(self._rules.goal)):
                    return end.rate_per_s
        return None

    def _unconfirmed(self, low: Probe | None, high: Probe | None) -> float | None:
        """An end of the bracket that was measured but once."""
        runs = min(_CONFIRMATION_RUNS, self._rules.runs_per_rate)
        for end in (high, low):
            if end is not None and end.runs < runs:
                return end.rate_per_s
        return None

    def _probes(self) -> tuple[Probe, ...]:
        """All rates measured, in order, with their verdicts."""
        known = sorted(self._measured.items())
        points = [
            (measured.attainment.both().value, float(measured.attainment.calls))
            for _rate, measured in known
        ]
        return tuple(
            Probe(
                rate_per_s=rate,
                runs=measured.runs,
                attainment=measured.attainment,
                fitted=fitted,
                passes=fitted >= self._rules.goal,
            )
            for (rate, measured), fitted in zip(known, falling_fit(points), strict=True)
        )

    def _goodput(self, stopped: StopReason) -> Goodput:
        probes = self._probes()
        low, high = _bracket(probes)
        return Goodput(
            rate_per_s=low.rate_per_s if low else 0.0,
            fails_at_per_s=high.rate_per_s if high else None,
            goal=self._rules.goal,
            devices=self._rules.devices,
            stopped=stopped,
            probes=probes,
        )


def _bracket(probes: Sequence[Probe]) -> tuple[Probe | None, Probe | None]:
    """The highest rate that passes and the lowest that fails: neighbours, as the curve falls."""
    passing = sum(probe.passes for probe in probes)
    return (
        probes[passing - 1] if passing else None,
        probes[passing] if passing < len(probes) else None,
    )


def _four_digits(rate_per_s: float) -> float:
    """A rate that people can read; still between ends that are further apart than a tolerance."""
    return float(f"{rate_per_s:.4g}")
