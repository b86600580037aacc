"""Coefficients as whole numbers of steps, each after what the token before says of it, and back.

    symbol 127 + q for |q| up to a column's limit, 255 for an escape, whose q stands elsewhere

Prediction is from what the decoder will have, so that errors do not add up. What is rounded to
q ≠ 0 is taken to lie `shift` steps nearer to zero: coefficients near zero are the more likely ones.
"""

import numpy as np
import numpy.typing as npt

from .kernel import kernel
from .rows import Floats

ZERO = 127
ESCAPE = 255
_MOST = np.float32(1 << 24)
"""Steps. What is further out is no KV of this model."""

Symbols = npt.NDArray[np.uint8]


def whole_numbers(
    scaled: Floats,
    following: Floats,
    shift: Floats,
    limit: npt.NDArray[np.int32],
    rounding: float,
) -> tuple[Symbols, npt.NDArray[np.int32]] | None:
    """Symbols [tokens, columns] of `scaled`, and the values of its escapes in their order.

    None: a number is not finite, or more than 2²⁴ steps. `limit` −1: always 0.
    """
    symbols = np.empty(scaled.shape, np.uint8)
    numbers = np.empty(scaled.shape, np.int32)
    rounded_down = np.float32(1 - rounding)
    if not _round(scaled, following, shift, limit, rounded_down, symbols, numbers):
        return None
    return symbols, numbers[symbols == ESCAPE]


def count_escapes(symbols: Symbols) -> int:
    """How many there are."""
    return int(np.count_nonzero(symbols == ESCAPE))


def restore(
    symbols: Symbols, following: Floats, shift: Floats, escapes: npt.NDArray[np.int32]
) -> Floats:
    """What the decoder has of `scaled`. There are as many `escapes` as symbols for them."""
    numbers = symbols.astype(np.int32) - ZERO
    if len(escapes):
        numbers[symbols == ESCAPE] = escapes
    scaled = np.empty(symbols.shape, np.float32)
    _restore(numbers, following, shift, scaled)
    return scaled


@kernel
def _round(scaled, following, shift, limit, rounded_down, symbols, numbers):
    tokens, columns = scaled.shape
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
