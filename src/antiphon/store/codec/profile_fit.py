"""From samples of a model's KV to its profile.

    for each part (keys or values of a section), over tokens of samples:
        C  covariance of the vectors        M  second moment of the gradients (Fisher matrix)
    A·Aᵀ = M, U·Λ·Uᵀ = Aᵀ·C·A      coefficients = Uᵀ·Aᵀ·(vector − mean)

An error e of a vector costs ½·eᵀ·M·e nats of the tokens after it. In coefficients that is half the
square of the error, whichever has it, so that one step for all coefficients of all layers loses
least for its bits (reverse water-filling; Cover & Thomas, §10.3.3), and in directions of largest
variance the fewest coefficients have any bits at all (Karhunen-Loève). The bins of layers, of keys
and of channels, and what can be left out, follow from M.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .coefficients import ESCAPE, ZERO, Rule, restore, whole_numbers
from .entropy_coder import prediction
from .profile import MOST_LOW_BITS, SKIPPED, ProfileLevel, Transform, low_frequencies
from .rans import SYMBOLS, TOTAL, Distributions
from .rows import Floats, Part

_FLOOR = 0.5
"""Of the mean curvature: added to every direction, since samples are few and texts differ."""
_LEAST_RATIO = 0.2
"""Coefficients that spread less than so many steps are not kept."""
_WIDE = 16.0
"""Steps: what spreads further has low bits."""
_CLASSES_AN_OCTAVE = 4
_CLASSES = 27
"""For keys, and as many for values: spreads of 0.2 … 18 steps."""
_ALL_CLASSES = 1 + 2 * _CLASSES + MOST_LOW_BITS
_TAIL = 5e-4
"""Share of a class that may be escapes."""
_ESCAPE_BITS = 8
_FEW_TOKENS = 256
"""Of each run: enough to find a level's step."""
_CLOSE, _TRIES = 0.005, 12


@dataclass(slots=True, eq=False)
class Moments:
    """Sums over tokens of one part: of vectors, their products, the gradients' products."""

    tokens: int
    total: npt.NDArray[np.float64]
    products: npt.NDArray[np.float64]
    neighbours: npt.NDArray[np.float64]
    """Of a vector and the one of the token before."""
    curvature: npt.NDArray[np.float64]

    @classmethod
    def none(cls, size: int) -> "Moments":
        """Of no token."""
        square = [np.zeros((size, size)) for _ in range(3)]
        return cls(0, np.zeros(size), *square)

    def add(self, vectors: Floats, gradients: Floats, following: int) -> None:
        """Vectors [tokens, size] of neighbouring tokens; gradients of `following` tokens."""
        self.tokens += len(vectors)
        self.total += vectors.sum(0, np.float64)
        self.products += vectors.T @ vectors
        self.neighbours += vectors[1:].T @ vectors[:-1]
        self.curvature += (gradients.T @ gradients).astype(np.float64) / following


def transform_of(moments: Moments, floor: float = _FLOOR) -> Transform:
    """See the top of this file."""
    count = max(moments.tokens, 1)
    mean = moments.total / count
    covariance = moments.products / count - np.outer(mean, mean)
    neighbours = moments.neighbours / count - np.outer(mean, mean)
    curvature = moments.curvature / count
    size = len(mean)
    curvature += np.eye(size) * max(floor * np.trace(curvature) / size, 1e-30)
    root = np.linalg.cholesky(curvature)
    variances, directions = np.linalg.eigh(root.T @ covariance @ root)
    order = np.argsort(variances, kind="stable")[::-1]
    directions = directions[:, order]
    forward = directions.T @ root.T
    inverse = np.linalg.inv(root.T) @ directions
    variances = np.maximum(variances[order], 0)
    together = np.einsum("ij,jk,ik->i", forward, neighbours, forward)
    following = np.clip(together / np.maximum(variances, 1e-30), 0, 0.99)
    return Transform(
        forward=forward.astype(np.float32),
        inverse=inverse.astype(np.float32),
        mean=mean.astype(np.float32),
        spread=np.sqrt(variances).astype(np.float32),
        following=following.astype(np.float32),
    )


def fit_levels(
    bits: Sequence[float],
    transforms: Sequence[Transform],
    parts: Sequence[Part],
    unseen: Sequence[Sequence[Floats]],
    rounding: float,
    advance: Callable[[], None] = lambda: None,
) -> tuple[ProfileLevel, ...]:
    """A level for each number of `bits` an element.

    `unseen`: for each part runs of vectors [tokens, channels] that no transform has seen.
    """
    scaled: list[list[Floats]] = [
        [((rows - one.mean) @ one.forward.T).astype(np.float32) for rows in runs]
        for one, runs in zip(transforms, unseen, strict=True)
    ]
    few = [[rows[:_FEW_TOKENS] for rows in runs] for runs in scaled]
    spreads = np.concatenate([one.spread for one in transforms])
    levels, near = [], max(float(np.median(spreads)), 1e-9)
    for wanted in bits:
        near = _step_for(wanted, near, lambda step: _level(step, transforms, parts, few, rounding))
        levels.append(_level(near, transforms, parts, scaled, rounding))
        advance()
    return tuple(levels)


def _step_for(wanted: float, near: float, level: Callable[[float], ProfileLevel]) -> float:
    """The step whose level takes so many bits, from one that is thought to be near.

    A step twice as large saves a bit of each coefficient that is kept: at most one an element.
    """
    least, most = 0.0, np.inf
    step, slope, last = near, 0.7, None
    for _ in range(_TRIES):
        bits = level(step).bits_per_element
        if abs(bits - wanted) < _CLOSE * wanted or not bits:
            break
        least, most = (step, most) if bits > wanted else (least, step)
        if last is not None and last[1] != bits:
            slope = np.clip((last[1] - bits) / np.log2(step / last[0]), 0.1, 1.2)
        last = step, bits
        step = float(step * 2 ** np.clip((bits - wanted) / slope, -2, 2))
        if not least < step < most:
            step = float(np.sqrt(least * most))
    return step


def _level(
    step: float,
    transforms: Sequence[Transform],
    parts: Sequence[Part],
    scaled: Sequence[Sequence[Floats]],
    rounding: float,
) -> ProfileLevel:
    """The level of a step: each coefficient's class, and the classes' distributions."""
    counts = np.zeros((_ALL_CLASSES, SYMBOLS), np.int64)
    near, ones = np.zeros(_ALL_CLASSES), np.zeros(_ALL_CLASSES)
    raw_bits, elements = 0, 0
    all_classes, all_low = [], []
    for part, one, runs in zip(parts, transforms, scaled, strict=True):
        classes, rule = _rule(one, step, part.side)
        all_classes.append(classes)
        all_low.append(rule.low_bits)
        for rows in runs:
            elements += rows.size
            units = np.ascontiguousarray(rows) / np.float32(step)
            coded = whole_numbers(units, rule, rounding)
            if coded is None:
                raise ValueError("the samples hold numbers that are not finite")
            raw_bits += len(rows) * int(rule.low_bits.sum())
            place = classes.astype(np.int64) * SYMBOLS + coded.symbols
            counts += np.bincount(place.ravel(), minlength=counts.size).reshape(counts.shape)
            other = coded.symbols != ZERO
            below = coded.symbols < ZERO
            error = restore(coded, rule) - units
            each = np.broadcast_to(classes, other.shape)[other]
            near += np.bincount(each, np.where(below, -error, error)[other], _ALL_CLASSES)
            ones += np.bincount(each, minlength=_ALL_CLASSES)
    frequencies = np.stack([_frequencies(row) for row in counts])
    frequencies[SKIPPED] = 0
    frequencies[SKIPPED, ZERO] = TOTAL
    frequencies[-MOST_LOW_BITS:] = low_frequencies()
    tables = Distributions(frequencies)
    bits = raw_bits + sum(_bits(tables, klass, row) for klass, row in enumerate(counts))
    shift = np.clip(near / np.maximum(ones, 1), 0, 0.4).astype(np.float32)
    return ProfileLevel(
        step=step,
        frequencies=frequencies,
        shift=shift,
        classes=tuple(all_classes),
        low_bits=tuple(all_low),
        bits_per_element=bits / elements,
    )


def _rule(transform: Transform, step: float, side: int) -> tuple[npt.NDArray[np.uint8], Rule]:
    """Each coefficient's class (0: not kept), and how it is rounded while nothing is known yet."""
    following = prediction(transform, step)
    ratio = transform.spread / max(step, 1e-30)
    left = ratio * np.sqrt(np.maximum(1 - following**2, 0.01))
    low_bits = np.clip(np.ceil(np.log2(np.maximum(left, 1e-9) / _WIDE)), 0, MOST_LOW_BITS)
    place = _CLASSES_AN_OCTAVE * np.log2(np.maximum(left / 2**low_bits, 1e-9) / _LEAST_RATIO)
    number = 1 + side * _CLASSES + np.clip(np.rint(place), 0, _CLASSES - 1)
    kept = ratio >= _LEAST_RATIO
    rule = Rule(
        following=np.where(kept, following, 0).astype(np.float32),
        shift=np.zeros(len(kept), np.float32),
        limit=np.where(kept, ZERO, -1).astype(np.int32),
        low_bits=low_bits.astype(np.uint8),
    )
    return np.where(kept, number, SKIPPED).astype(np.uint8), rule


def _frequencies(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    """A distribution of 4,096 parts: what was counted, both signs alike, and room for escapes."""
    both = (counts[ZERO:ESCAPE] + counts[ZERO::-1]).astype(np.float64)
    both[0] /= 2
    total = both.sum() + counts[ESCAPE]
    beyond = total - np.cumsum(both)
    limit = max(int(np.argmax(beyond <= _TAIL * total)), 1)
    shares = np.zeros(SYMBOLS)
    for q in range(limit + 1):
        shares[ZERO + q] = shares[ZERO - q] = (both[q] / 2 if q else both[0]) + 0.5
    shares[ESCAPE] = beyond[limit] + 0.5
    parts = np.where(shares > 0, np.maximum(np.rint(shares / shares.sum() * TOTAL), 1), 0)
    while parts.sum() != TOTAL:
        parts[np.argmax(parts)] += np.sign(TOTAL - parts.sum())
    return parts.astype(np.uint16)


def _bits(tables: Distributions, klass: int, counts: npt.NDArray[np.int64]) -> float:
    """What symbols of a class take, those that it has no symbol for as escapes."""
    missing = (tables.frequencies[klass] == 0) & (counts > 0)
    shown = np.where(missing, 0, counts)
    extra = int(counts[missing].sum())
    shown[ESCAPE] += extra
    return tables.bits(klass, shown) + _ESCAPE_BITS * int(shown[ESCAPE])
