"""From measured steps to a `FittedStepTime`: relative least squares, regimes where data asks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np

from antiphon.errors import UsageError
from antiphon.types import Seconds

from .non_negative import Floats, non_negative_least_squares
from .step_time import FittedStepTime, Ramp
from .step_work import StepWork

_KNOTS = tuple(2**power for power in range(13))
"""Where a regime may begin: at 1, 2, 4, … 4096 tokens or sampled rows."""
_FEWEST_IN_REGIME = 3
"""Steps that a regime must have: one odd time must not make a slope."""
_STRONG_EVIDENCE = 6.0
"""How far one more regime must lower Schwarz's criterion (Kass & Raftery 1995, section 3.2)."""
_PERFECT = 1e-18
"""A mean squared relative error that only rounding is left of."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The work of a step and how long it took."""

    work: StepWork
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class _Regimes:
    """Where each ramp has its knots, beside 0."""

    token: tuple[int, ...] = ()
    sampled: tuple[int, ...] = ()

    def finer(self, steps: Sequence[Measured]) -> list["_Regimes"]:
        """All that have one knot more."""
        token = _more(self.token, [step.work.tokens for step in steps])
        sampled = _more(self.sampled, [step.work.sampled for step in steps])
        return [_Regimes(knots, self.sampled) for knots in token] + [
            _Regimes(self.token, knots) for knots in sampled
        ]


def _more(knots: tuple[int, ...], counts: Sequence[int]) -> list[tuple[int, ...]]:
    """`knots` and one more, such that each regime has its share of the measured counts.

    Below the smallest count there is no regime: it could not be told from the fixed time.
    """
    candidates = [
        tuple(sorted((*knots, knot))) for knot in _KNOTS if knot not in knots and knot > min(counts)
    ]
    return [
        wider
        for wider in candidates
        if all(
            sum(low < count <= high for count in counts) >= _FEWEST_IN_REGIME
            for low, high in pairwise((min(counts) - 1, *wider, max(counts)))
        )
    ]


def fit_step_time(steps: Sequence[Measured]) -> FittedStepTime:
    """The model with the least squared relative error over `steps`.

    A regime is added where Schwarz's criterion (1978) says that there is strong evidence for it,
    the best first, so that noise alone makes none. Raises `UsageError` with fewer than 8 steps, or
    one that took no time.
    """
    if len(steps) < 8:
        raise UsageError(f"a step-time model needs at least 8 measured steps, not {len(steps)}")
    if not all(step.seconds > 0 for step in steps):
        raise UsageError("a measured step took no time: the clock is too coarse for this model")
    chosen = _Fit.of(_Regimes(), steps)
    while chosen.error > _PERFECT:
        finer = [_Fit.of(regimes, steps) for regimes in chosen.regimes.finer(steps)]
        best = min(finer, key=lambda fit: fit.criterion, default=chosen)
        if best.criterion > chosen.criterion - _STRONG_EVIDENCE:
            break
        chosen = best
    return chosen.model()


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    regimes: _Regimes
    coefficients: Floats
    """Fixed, chunk, context, attention, then the slopes of both ramps."""
    error: float
    """Mean squared relative error."""
    criterion: float
    """Schwarz's: less is better."""

    @classmethod
    def of(cls, regimes: _Regimes, steps: Sequence[Measured]) -> "_Fit":
        rows = np.array([_row(step.work, regimes) for step in steps], np.float64)
        relative = rows / np.array([[step.seconds] for step in steps])
        ones = np.ones(len(steps))
        coefficients = non_negative_least_squares(relative, ones)
        error = float(np.mean((relative @ coefficients - ones) ** 2))
        count = len(steps)
        criterion = count * log(max(error, _PERFECT)) + rows.shape[1] * log(count)
        return cls(regimes, coefficients, error, criterion)

    def model(self) -> FittedStepTime:
        fixed, chunk, context, attention, *slopes = (float(value) for value in self.coefficients)
        token_starts = (0, *self.regimes.token)
        cut = len(token_starts)
        return FittedStepTime(
            fixed_s=fixed,
            token=Ramp(starts=token_starts, slopes_s=tuple(slopes[:cut])),
            sampled=Ramp(starts=(0, *self.regimes.sampled), slopes_s=tuple(slopes[cut:])),
            chunk_s=chunk,
            context_s=context,
            attention_s=attention,
        )


def _row(work: StepWork, regimes: _Regimes) -> list[float]:
    """What each coefficient is multiplied by."""
    return [
        1,
        work.chunks,
        work.context,
        work.attention,
        *_shares(work.tokens, regimes.token),
        *_shares(work.sampled, regimes.sampled),
    ]


def _shares(count: int, knots: tuple[int, ...]) -> list[int]:
    """How much of `count` lies in each regime."""
    edges = (0, *knots, max(count, knots[-1] if knots else 0))
    return [min(max(count - low, 0), high - low) for low, high in pairwise(edges)]
