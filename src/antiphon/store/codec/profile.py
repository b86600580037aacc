"""What is known of a model's KV before any of it is seen: the profile of entropy-coded levels.

Layers come in sections, and in each the keys of all its heads are one vector a token, and the
values another. For each of them the profile has an affine map to coefficients that are as good as
uncorrelated, and in which an error of one step does equal harm whichever coefficient has it; how
large each is, and how far the one of the token before predicts it; and for each level the step and
the distribution of each coefficient's whole numbers. Nothing of that travels with a block but the
profile's id, a digest of all of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from .blob import PROFILE_ID_BYTES
from .coefficients import ESCAPE, ZERO
from .rans import LANES, SYMBOLS, TOTAL, Distributions
from .rows import Floats, Part

_PERSON = b"antiphon.kvprof1"
_MOST_CLASSES = 256
"""A class is a byte."""
_FINEST = 1e-30
"""Steps are in float32, and their inverses."""
MOST_LOW_BITS = 7
"""Of a coefficient. The last classes of a level are those of low parts: of 1 bit, of 2 …"""
SKIPPED = 0
"""The class of coefficients that a level does not keep: one symbol, which takes no bits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transform:
    """coefficients = forward · (vector − mean): float32 [size, size], [size]; largest first.

    `inverse` undoes it. `spread` [size]: standard deviations; `following` [size]: the correlation
    of neighbouring tokens.
    """

    forward: Floats
    inverse: Floats
    mean: Floats
    spread: Floats
    following: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfileLevel:
    """How much is kept of coefficients.

    `step`: the distance of what they are rounded to. `frequencies` uint16 [classes, 256] (see
    `rans.Distributions`), the first of which is that of what is not kept; `shift` float32
    [classes]: by how much of a step what is rounded lies nearer to zero. `classes` and `low_bits`:
    one uint8 [size] each for each transform. `bits_per_element` and `divergence` (nats, where it is
    known) are what to expect.
    """

    step: float
    frequencies: npt.NDArray[np.uint16]
    shift: Floats
    classes: tuple[npt.NDArray[np.uint8], ...]
    low_bits: tuple[npt.NDArray[np.uint8], ...]
    bits_per_element: float
    divergence: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class KvProfile:
    """See the top of this file.

    `identity` is the model's; `layers`, `heads`, `width` those of its blocks. `transforms`: keys
    and values of the first section, of the second, and so on; sections have `section_layers`
    layers, the last maybe fewer. `frequencies` float32 [head_dim / 2]: radians a position; none:
    keys are taken as they are. `kept_tokens`: so many at position 0 … are kept as they are, since
    everything attends to them. `rounding`: what is this far above a whole number is rounded up.
    """

    identity: bytes
    model: str
    layers: int
    heads: int
    width: int
    section_layers: int
    frequencies: Floats
    kept_tokens: int
    rounding: float
    transforms: tuple[Transform, ...]
    levels: tuple[ProfileLevel, ...]
    coders: dict[int, Any] = field(default_factory=dict, repr=False)
    """Filled by `entropy_coder`: tables of levels that were used."""

    @property
    def sections(self) -> int:
        """Number of them."""
        return -(-self.layers // self.section_layers)

    def parts(self) -> Iterator[Part]:
        """What each of `transforms` is of."""
        for first in range(0, self.layers, self.section_layers):
            count = min(self.section_layers, self.layers - first)
            yield Part(0, first, count)
            yield Part(1, first, count)

    @cached_property
    def id(self) -> bytes:
        """16 bytes: a digest of all that decoding depends on."""
        digest = blake2b(digest_size=PROFILE_ID_BYTES, person=_PERSON)
        sizes = (self.layers, self.heads, self.width, self.section_layers, self.kept_tokens)
        digest.update(repr((self.identity, sizes)).encode())
        arrays = [self.frequencies]
        for one in self.transforms:
            arrays += [one.inverse, one.mean, one.spread, one.following]
        for level in self.levels:
            arrays += [np.float64(level.step), level.frequencies, level.shift]
            arrays += [*level.classes, *level.low_bits]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


def find_flaw(profile: KvProfile) -> str | None:
    """What makes a profile impossible; None: it can be used. Does not mutate."""
    sizes = [part.layers * profile.heads * profile.width for part in profile.parts()]
    if len(profile.transforms) != len(sizes):
        return f"{len(profile.transforms)} transforms for {len(sizes)} parts"
    for number, (size, one) in enumerate(zip(sizes, profile.transforms, strict=True)):
        if (flaw := _transform_flaw(one, size)) is not None:
            return f"transform {number} {flaw}"
    half = profile.frequencies
    if not _is(half, np.float32, (half.size,)) or half.size * 2 > profile.width:
        return "rotary frequencies are no list of float32, or more than half the width"
    if not np.isfinite(half).all():
        return "rotary frequencies are not finite"
    if not 0.5 <= profile.rounding < 1 or not 0 <= profile.kept_tokens <= 255:
        return "rounding is not in 0.5 … 1, or kept_tokens not in 0 … 255"
    flaws = (_level_flaw(level, sizes) for level in profile.levels)
    return next((f"level {n}: {flaw}" for n, flaw in enumerate(flaws, 1) if flaw), None)


def _is(array: npt.NDArray, dtype: Any, shape: tuple[int, ...]) -> bool:
    """Kernels index arrays as these say, unchecked: neither may be another."""
    return array.dtype == dtype and array.shape == shape


def _transform_flaw(one: Transform, size: int) -> str | None:
    vectors = (one.mean, one.spread, one.following)
    matrices = (one.forward, one.inverse)
    if not all(_is(array, np.float32, (size,)) for array in vectors) or not all(
        _is(array, np.float32, (size, size)) for array in matrices
    ):
        return f"is not of {size} channels in float32"
    if not all(np.isfinite(array).all() for array in (*vectors, *matrices)):
        return "is not finite"
    if (one.spread < 0).any() or (np.abs(one.following) > 1).any():
        return "has a spread below 0, or a correlation beyond 1"
    return None


def _level_flaw(level: ProfileLevel, sizes: Sequence[int]) -> str | None:
    if not _FINEST <= level.step <= 1 / _FINEST:
        return "the step is not above 0, or no float32"
    return _tables_flaw(level) or _channels_flaw(level, sizes)


def _tables_flaw(level: ProfileLevel) -> str | None:
    classes = level.frequencies.shape[0] if level.frequencies.ndim else 0
    if not MOST_LOW_BITS < classes <= _MOST_CLASSES:
        return f"not {MOST_LOW_BITS + 1} … {_MOST_CLASSES} classes"
    if not _is(level.frequencies, np.uint16, (classes, SYMBOLS)):
        return f"distributions are not of {SYMBOLS} uint16"
    try:
        Distributions(level.frequencies)
    except ValueError as problem:
        return str(problem)
    if level.frequencies[SKIPPED, ZERO] != TOTAL:
        return "the class of what is not kept has another symbol than that of 0"
    own = level.frequencies[SKIPPED + 1 : classes - MOST_LOW_BITS]
    if not own[:, [ZERO, ESCAPE]].all():
        return "a class has no symbol for 0, or none for escapes"
    if not _is(level.shift, np.float32, (classes,)) or not (np.abs(level.shift) < 1).all():
        return "a shift is a step or more, or not one float32 for each class"
    if not np.array_equal(level.frequencies[-MOST_LOW_BITS:], low_frequencies()):
        return "the last classes are not those of low bits"
    return None


def _channels_flaw(level: ProfileLevel, sizes: Sequence[int]) -> str | None:
    own = len(level.frequencies) - MOST_LOW_BITS
    if not len(level.classes) == len(level.low_bits) == len(sizes):
        return "not as many lists of classes, or of low bits, as transforms"
    for size, mine, low in zip(sizes, level.classes, level.low_bits, strict=True):
        if not _is(mine, np.uint8, (size,)) or (mine >= own).any():
            return "a class that coefficients can't have, or not one for each channel"
        if not _is(low, np.uint8, (size,)) or (low > MOST_LOW_BITS).any():
            return f"low bits beyond {MOST_LOW_BITS}, or not for each channel"
    return None


def low_frequencies() -> npt.NDArray[np.uint16]:
    """Distributions of low parts of 1, 2 … bits: all alike."""
    rows = np.zeros((MOST_LOW_BITS, SYMBOLS), np.uint16)
    for bits, row in enumerate(rows, 1):
        row[: 1 << bits] = TOTAL >> bits
    return rows


def padded(columns: int) -> int:
    """Whole lanes."""
    return -(-columns // LANES) * LANES
