"""Coefficients as whole numbers of steps, each after what the token before says of it, and back.

    q = 2^b · high + low − 2^(b−1)      b: the column's low bits; 0, and low 0, for nearly all
    symbol 127 + high for |high| up to a column's limit, 255 for an escape, which stands elsewhere

Prediction is from what the decoder will have, so that errors do not add up. What is rounded to
q ≠ 0 is taken to lie `shift` steps nearer to zero: coefficients near zero are the more likely ones.
Numbers of a column that spreads over hundreds of steps are as likely as their neighbours: their low
bits are as good as chance, and are coded as columns of their own.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .kernel import kernel
from .rows import Floats

ZERO = 127
ESCAPE = 255
_MOST = np.float32(1 << 24)
"""Steps. What is further out is no KV of this model."""

Symbols = npt.NDArray[np.uint8]


class Rule(NamedTuple):
    """What columns have: how far the token before predicts them, `shift`, limit, low bits.

    float32, float32, int32, uint8 [columns]. Limit −1: a column is always 0.
    """

    following: Floats
    shift: Floats
    limit: npt.NDArray[np.int32]
    low_bits: npt.NDArray[np.uint8]

    @property
    def wide(self) -> npt.NDArray[np.int64]:
        """Columns that have low bits."""
        return np.flatnonzero(self.low_bits)


class Coded(NamedTuple):
    """Symbols uint8 [tokens, columns], low parts uint8 [tokens, wide columns], where the escapes
    are (`escape_places`), and what they are, int32."""

    symbols: Symbols
    lows: npt.NDArray[np.uint8]
    places: npt.NDArray[np.int64]
    escapes: npt.NDArray[np.int32]


def escape_places(symbols: Symbols) -> npt.NDArray[np.int64]:
    """Numbers of the escapes among all symbols, row by row."""
    return np.flatnonzero(symbols == ESCAPE)


def whole_numbers(scaled: Floats, rule: Rule, rounding: float) -> Coded | None:
    """`scaled` [tokens, columns or more] rounded. None: one is not finite, or more than 2²⁴
    steps."""
    shape = len(scaled), len(rule.limit)
    symbols = np.empty(shape, np.uint8)
    numbers = np.empty(shape, np.int32)
    rounded_down = np.float32(1 - rounding)
    rounds = (rule.following, rule.shift, rule.limit, rounded_down)
    if not _round(scaled, *rounds, symbols, numbers):
        return None
    wide = rule.wide
    lows = np.empty((len(symbols), len(wide)), np.uint8)
    if len(wide):
        bits = rule.low_bits[wide].astype(np.int32)
        half = (1 << bits) >> 1
        high = (numbers[:, wide] + half) >> bits
        lows[:] = numbers[:, wide] + half - (high << bits)
        beyond = np.abs(high) > rule.limit[wide]
        symbols[:, wide] = np.where(beyond, ESCAPE, high + ZERO)
        numbers[:, wide] = high
    places = escape_places(symbols)
    return Coded(symbols, lows, places, numbers.reshape(-1)[places])


def restore(coded: Coded, rule: Rule) -> Floats:
    """What the decoder has of `scaled`. There are as many escapes as symbols for them."""
    symbols, lows, places, escapes = coded
    numbers = np.empty(symbols.shape, np.int32)
    np.subtract(symbols, np.int32(ZERO), out=numbers, dtype=np.int32)
    if len(places):
        numbers.reshape(-1)[places] = escapes
    wide = rule.wide
    if len(wide):
        bits = rule.low_bits[wide].astype(np.int32)
        numbers[:, wide] = (numbers[:, wide] << bits) + lows - ((1 << bits) >> 1)
    scaled = np.empty(symbols.shape, np.float32)
    _restore(numbers, rule.following, rule.shift, scaled)
    return scaled


@kernel
def _round(scaled, following, shift, limit, rounded_down, symbols, numbers):
    tokens, columns = symbols.shape
    before = np.zeros(columns, np.float32)
    odd = np.uint32(0)
    for token in range(tokens):
        for c in range(columns):
            guess = before[c] * following[c]
            rest = scaled[token, c] - guess
            size = abs(rest)
            odd |= np.uint32(not size < _MOST)
            steps = np.int32(min(size, _MOST) + rounded_down)
            steps = np.int32(0) if limit[c] < 0 else steps
            q = -steps if rest < 0 else steps
            back = np.float32(steps) - (shift[c] if steps > 0 else np.float32(0))
            before[c] = guess + (-back if rest < 0 else back)
            numbers[token, c] = q
            symbols[token, c] = np.uint8(ESCAPE if steps > abs(limit[c]) else q + ZERO)
    return odd == 0


@kernel
def _restore(numbers, following, shift, scaled):
    tokens, columns = scaled.shape
    before = np.zeros(columns, np.float32)
    for token in range(tokens):
        for c in range(columns):
            q = numbers[token, c]
            back = np.float32(abs(q)) - (shift[c] if q != 0 else np.float32(0))
            before[c] = before[c] * following[c] + (-back if q < 0 else back)
            scaled[token, c] = before[c]
