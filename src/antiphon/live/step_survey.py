"""Takes the times of many different steps on one engine, within a budget of time.

    axes ─► one pass each: how dear is what? ─► what else the budget allows, both kinds in turn
         ─► rounds over all of them, each in another order ─► at least three times of each

Rounds rather than runs of the same step: what else happens on the machine then disturbs all steps
alike, and weights and KV are as cold in the caches as when a server goes through its steps. There a
decode mostly follows its like, so a short one is timed after a few of itself: on its own a decode
of SmolLM2-135M takes a tenth longer.
"""

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from random import Random
from statistics import median

from antiphon.errors import UsageError
from antiphon.perf import (
    Limits,
    Measured,
    StepKind,
    StepShape,
    axes,
    fit_step_time,
    grid,
    held_out,
    quantile,
)
from antiphon.types import Engine, Seconds

from .step_timer import StepTimer

HELD_OUT_POINTS = 40
MOST_REPEATS = 15
_FEWEST_REPEATS = 3
_FEWEST_AXES = 10
_FEWEST_HELD_OUT = 8
_DEAREST = 1 / 40
"""A step that takes more than this share of the budget is left out."""
_MOST_BEFORE = 3
_LONGEST_RUN = 1 / 2000
"""So many passes, within this share of the budget, come before one of a decode that counts."""
_WORK_GROWS = 3
"""The next step on an axis takes up to about this many times as long as the one before."""

Clock = Callable[[], Seconds]
Advance = Callable[[float], None]
"""Told from time to time which share of the work is done, 0 … 1."""


class SurveyedStep:
    """A step of the grid, or a held-out one, and all times that were taken of it."""

    def __init__(self, number: int, shape: StepShape, held_out: bool) -> None:
        self.number = number
        self.shape = shape
        self.held_out = held_out
        self.first_s: Seconds = 0.0
        self.times: list[Seconds] = []

    @property
    def measured(self) -> Measured:
        """The step with its median time."""
        return Measured(self.shape.work, median(self.times))

    @property
    def spread(self) -> float:
        """(Third − first quartile) / median of the times."""
        ascending = sorted(self.times)
        width = quantile(ascending, 0.75) - quantile(ascending, 0.25)
        return width / median(ascending)


class StepSurvey:
    """Measures the grid and held-out steps of one engine, which is fresh.

    `seed` picks the held-out steps, the order, and what is left out for want of time. `count`: how
    many steps there are to measure.
    """

    def __init__(self, engine: Engine, limits: Limits, vocab_size: int, seed: int) -> None:
        seen, unseen = grid(limits), held_out(limits, HELD_OUT_POINTS, seed)
        shapes = [*seen, *unseen]
        steps = [SurveyedStep(n, shape, n >= len(seen)) for n, shape in enumerate(shapes)]
        first = {shape.chunks for shape in axes(limits)}
        self.count = len(steps)
        self._axes = [step for step in steps if step.shape.chunks in first and not step.held_out]
        self._rest = [step for step in steps if step not in self._axes]
        self._chance = Random(seed)
        self._timer = StepTimer(engine, limits, vocab_size, shapes)

    def run(self, budget_s: Seconds, clock: Clock, advance: Advance) -> list[SurveyedStep]:
        """The steps that the budget allows, each with three times or more, in the grid's order.

        If the machine gets slower meanwhile it may take half as long again, and if that is not
        enough, some steps are timed less often. Raises `UsageError` if those are too few.
        """
        ends_at = clock() + budget_s
        kept = self._first_passes(budget_s)
        if len(kept) >= _FEWEST_AXES:
            kept += self._affordable(kept, budget_s, ends_at - clock())
        if sum(step.held_out for step in kept) < _FEWEST_HELD_OUT:
            raise UsageError(
                f"only {len(kept)} of {self.count} different steps can be measured in "
                f"{budget_s:g} s and this KV memory, too few for a fit: raise --budget or "
                "--kv-memory"
            )
        self._rounds(kept, budget_s, ends_at, clock, advance)
        for step in kept:
            self._timer.forget(step.number)
        return sorted(kept, key=lambda step: step.number)

    def _first_passes(self, budget_s: Seconds) -> list[SurveyedStep]:
        """Run the axes once, those with less to do first, and leave out what is too dear.

        Half of the budget is enough to repeat each of those that are left. What seems dear runs
        again before it is believed: a first pass may have waited for something else.
        """
        passed: list[SurveyedStep] = []
        dear: list[StepShape] = []
        for step in self._axes:
            if any(_has_no_less_to_do(step.shape, other) for other in dear):
                continue
            passed.append(step)
            limit_s = budget_s * _DEAREST / _WORK_GROWS
            step.first_s = self._timer.first_pass(step.number)
            if step.first_s > limit_s:
                step.first_s = min(step.first_s, self._timer.time(step.number))
            if step.first_s > limit_s:
                dear.append(step.shape)
        dearest_first = sorted(passed, key=lambda step: (-step.first_s, step.number))
        whole_s = sum(step.first_s for step in passed)
        for step in dearest_first:
            affordable = whole_s * (1 + _FEWEST_REPEATS) <= budget_s / 2
            if affordable and step.first_s <= budget_s * _DEAREST:
                break
            whole_s -= step.first_s
            self._timer.forget(step.number)
            passed.remove(step)
        return passed

    def _affordable(
        self, passed: Sequence[SurveyedStep], budget_s: Seconds, left_s: Seconds
    ) -> list[SurveyedStep]:
        """Run other steps once: as many as can be repeated too, in random order over all sizes.

        Held-out steps and those of the grid take turns, and what they take is predicted from
        `passed`.
        """
        model = fit_step_time([Measured(step.shape.work, step.first_s) for step in passed])
        unseen = [step for step in self._rest if step.held_out]
        seen = [step for step in self._rest if not step.held_out]
        for steps in (unseen, seen):
            self._chance.shuffle(steps)
        left_s -= _FEWEST_REPEATS * sum(step.first_s for step in passed)
        chosen: list[SurveyedStep] = []
        for step in chain.from_iterable(zip_longest(unseen, seen)):
            if step is None:
                continue
            expected_s = model.seconds_of(step.shape.work)
            if expected_s <= min(budget_s * _DEAREST, left_s / (1 + _FEWEST_REPEATS)):
                step.first_s = self._timer.first_pass(step.number)
                left_s -= step.first_s * (1 + _FEWEST_REPEATS)
                chosen.append(step)
        return chosen

    def _rounds(
        self,
        kept: Sequence[SurveyedStep],
        budget_s: Seconds,
        ends_at: Seconds,
        clock: Clock,
        advance: Advance,
    ) -> None:
        for repeat in range(MOST_REPEATS):
            for done, step in enumerate(self._chance.sample(kept, len(kept))):
                left_s = ends_at - clock()
                fewest = _FEWEST_REPEATS if left_s > -budget_s / 2 else 1
                if left_s <= 0 and repeat >= fewest:
                    break
                for _ in range(_passes_before(step, budget_s)):
                    self._timer.time(step.number)
                step.times.append(self._timer.time(step.number))
                shares = (1 - left_s / budget_s, (repeat + done / len(kept)) / MOST_REPEATS)
                advance(min(1.0, max(shares)))
        advance(1.0)


def _passes_before(step: SurveyedStep, budget_s: Seconds) -> int:
    if step.shape.kind is not StepKind.DECODE:
        return 0
    return min(_MOST_BEFORE, int(budget_s * _LONGEST_RUN / step.first_s))


def _has_no_less_to_do(shape: StepShape, other: StepShape) -> bool:
    return all(mine >= its for mine, its in zip(shape.work, other.work, strict=True))
