"""Range asymmetric numeral systems: symbols under static distributions, 32 streams in lock step.

Duda, 2013 (arXiv:1311.2540); interleaved as Giesen, 2014 (arXiv:1402.3392). States are 32 bits and
take 16 bits at a time; probabilities have 12 bits. Symbols [tokens, columns] are taken column block
by column block, and within one token by token: the 32 columns of a block are the 32 lanes, each
with the distribution of its column. So a lane's table stays the same for all tokens, decoding is a
gather and a multiplication for all lanes at once, and then one word at most for each that needs it.

    decode  x ← f·⌊x / 2¹²⌋ + x mod 2¹² − c;  below 2¹⁶: x ← 2¹⁶·x + the next word

A stream is 32 states, then words, all little endian. One that is damaged never reads beyond its end
nor writes beyond the symbols: after the last symbol each state must be what encoding began with,
and all words be used.
"""

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError

from .kernel import kernel
from .lane_words import LANES, SPARE_WORDS, flush, refill

BITS = 12
SYMBOLS = 256
TOTAL = 1 << BITS
_LOW = 1 << 16
"""States lie in 2¹⁶ … 2³² − 1."""
STATE_BYTES = 4 * LANES


class Distributions:
    """Static distributions of 256 symbols as tables. `frequencies`: uint16 [classes, 256].

    Each row adds up to 4,096; a symbol of frequency 0 can't be encoded. Raises `ValueError`.
    """

    def __init__(self, frequencies: npt.NDArray[np.uint16]) -> None:
        wide = frequencies.astype(np.uint32)
        if wide.ndim != 2 or wide.shape[1] != SYMBOLS or (wide.sum(1) != TOTAL).any():
            raise ValueError(f"a distribution has {SYMBOLS} frequencies that add up to {TOTAL}")
        ends = wide.cumsum(1, dtype=np.uint32)
        starts = ends - wide
        slots = np.arange(TOTAL, dtype=np.uint32)
        symbols = np.stack([np.searchsorted(row, slots, side="right") for row in ends])
        own = np.take_along_axis(wide, symbols, 1)
        bias = slots - np.take_along_axis(starts, symbols, 1)
        self.classes = len(wide)
        self.decoding = (symbols.astype(np.uint32) | (own - 1) << 8 | bias << 20).ravel()
        """[classes · 4096]: symbol, frequency − 1, place within it."""
        self.encoding = (
            np.maximum(wide, 1) - 1 | np.minimum(starts, TOTAL - 1) << 12 | (wide > 0) << 24
        ).ravel()
        """[classes · 256]: frequency − 1, start, whether there is any."""
        self.frequencies = frequencies

    def bits(self, klass: int, counts: npt.NDArray[np.int64]) -> float:
        """What symbols that occur so often take; infinite if one can't be encoded."""
        own = self.frequencies[klass].astype(np.float64)
        with np.errstate(divide="ignore"):
            each = BITS - np.log2(own)
        return float(each[counts > 0] @ counts[counts > 0])


def encode(
    symbols: npt.NDArray[np.uint8], classes: npt.NDArray[np.uint8], tables: Distributions
) -> bytes:
    """The stream of `symbols` [tokens, columns], column `c` under class `classes[c]`.

    `columns` is a multiple of 32. Raises `BugError` for a symbol that its class does not have.
    """
    tokens, columns = symbols.shape
    _check(columns, classes, tables)
    words = np.empty(tokens * columns + SPARE_WORDS, np.uint16)
    states = np.empty(LANES, np.uint32)
    count = _encode(np.ascontiguousarray(symbols), classes, tables.encoding, words, states)
    if count < 0:
        raise BugError("a symbol has no frequency in its distribution")
    return states.astype("<u4").tobytes() + words[:count][::-1].astype("<u2").tobytes()


def decode(
    stream: memoryview | bytes,
    classes: npt.NDArray[np.uint8],
    tables: Distributions,
    into: npt.NDArray[np.uint8],
) -> bool:
    """Fill `into` [tokens, columns], as `encode`; False: this is no such stream.

    Then `into` holds anything. Never reads or writes beyond the two.
    """
    _check(into.shape[1], classes, tables)
    if len(stream) < STATE_BYTES or len(stream) % 2:
        return False
    states = np.frombuffer(stream, "<u4", LANES).astype(np.uint32)
    words = np.zeros((len(stream) - STATE_BYTES) // 2 + LANES, np.uint16)
    words[:-LANES] = np.frombuffer(stream, "<u2", offset=STATE_BYTES)
    return bool(_decode(words, states, classes, tables.decoding, into))


def _check(columns: int, classes: npt.NDArray[np.uint8], tables: Distributions) -> None:
    if columns % LANES or len(classes) != columns or (classes >= tables.classes).any():
        raise BugError(f"{columns} columns of {len(classes)} classes: not whole lanes, or unknown")


@kernel
def _encode(symbols, classes, encoding, words, states):
    """How many of `words` there are, the stream's last one first; −1: a symbol has no frequency.
    `states` [32] become those to begin decoding with."""
    tokens, columns = symbols.shape
    base = np.empty(LANES, np.int64)
    frequency = np.empty(LANES, np.uint32)
    start = np.empty(LANES, np.uint32)
    inverse = np.empty(LANES, np.float64)
    states[:] = np.uint32(_LOW)
    at = 0
    for block in range(columns - LANES, -1, -LANES):
        for lane in range(LANES):
            base[lane] = np.int64(classes[block + lane]) * SYMBOLS
        for token in range(tokens - 1, -1, -1):
            known = np.uint32(1)
            for lane in range(LANES):
                entry = encoding[base[lane] + symbols[token, block + lane]]
                known &= entry >> np.uint32(24)
                frequency[lane] = (entry & np.uint32(0xFFF)) + np.uint32(1)
                start[lane] = (entry >> np.uint32(12)) & np.uint32(0xFFF)
                inverse[lane] = 1.0 / np.float64(frequency[lane])
            if known == 0:
                return -1
            at = flush(states, frequency, words, at)
            for lane in range(LANES):
                x = states[lane]
                # ⌊x / f⌋ exactly: half a step away from both neighbours, far more than rounding.
                quotient = np.uint32((np.float64(x) + 0.5) * inverse[lane])
                rest = x - quotient * frequency[lane]
                states[lane] = (quotient << np.uint32(BITS)) + rest + start[lane]
    return at


@kernel
def _decode(words, states, classes, decoding, into):
    """Whether all went as it must. `words` has `LANES` spare ones at its end."""
    tokens, columns = into.shape
    end = len(words) - LANES
    base = np.empty(LANES, np.uint32)
    at = 0
    for block in range(0, columns, LANES):
        for lane in range(LANES):
            base[lane] = np.uint32(classes[block + lane]) << np.uint32(BITS)
        for token in range(tokens):
            if at > end:
                return False
            for lane in range(LANES):
                x = states[lane]
                entry = decoding[base[lane] + (x & np.uint32(TOTAL - 1))]
                into[token, block + lane] = np.uint8(entry & np.uint32(0xFF))
                frequency = ((entry >> np.uint32(8)) & np.uint32(0xFFF)) + np.uint32(1)
                states[lane] = np.uint32(
                    frequency * (x >> np.uint32(BITS)) + (entry >> np.uint32(20))
                )
            at = refill(states, words, at)
    for lane in range(LANES):
        if states[lane] != np.uint32(_LOW):
            return False
    return at == end
