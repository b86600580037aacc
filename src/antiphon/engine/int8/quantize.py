"""From floats to the integers that the matrix product takes.

Weights: int8 per output channel, symmetric: w ≈ q·s, q in −127 … 127, s = max|w| / 127.
Activations: int16 per row: x ≈ q·s, q in −L … L, s = max|x| / L, L = 2^(b−1) − 1 with b ≤ 12 bits.

A row is rounded by itself: its integers depend on nothing but its own numbers, so a request's
result does not depend on its neighbours. A row or channel that holds a NaN or an infinity becomes
zeros with the scale NaN: everything computed from it is NaN, and so is visible at the logits,
and no other row or channel is touched.
"""

from dataclasses import dataclass

import numpy as np

from ..kernel_cache import kernel
from .microkernel import INPUT_MULTIPLE, PANEL_CHANNELS

WEIGHT_LIMIT = 127
ACTIVATION_BITS = 12
"""Bits of an activation where nothing forbids it: more do not measurably improve the output."""
_INT32_MAX = 2**31 - 1
_ALIGNMENT_BYTES = 64
_INFINITY_BITS = np.int32(0x7F800000)
_SMALLEST = np.float32(1e-30)
"""Rows and channels whose largest value is below this count as zero: its reciprocal is finite."""


def activation_limit(largest_row_sum: int) -> int:
    """The largest integer L = 2^(b−1) − 1, b ≤ 12, for which int32 sums can't overflow.

    `largest_row_sum` is the largest Σ|q| over a channel's integer weights. |Σ x·q| ≤ L·Σ|q|
    whatever the activations are, and the same holds for any part of the sum in any order. All
    weights with up to 8,260 inputs get 12 bits, and so do real ones far beyond.
    """
    for bits in range(ACTIVATION_BITS, 1, -1):
        limit = 2 ** (bits - 1) - 1
        if limit * largest_row_sum <= _INT32_MAX:
            return limit
    raise ValueError(f"a channel's weights sum to {largest_row_sum}: int32 can't hold a product")


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight matrix in the order in which every kernel reads it.

    `panels` int8 [channels/16, inputs/2, 32], 64-byte aligned; element [p, k, 2c + i] is the weight
    of channel 16p + c and input 2k + i. Channels are padded to 16 and inputs to `INPUT_MULTIPLE`,
    with zeros. Any batch size reads it front to back, once per block of rows.
    `channel_scale` float32, padded with zeros.
    """

    panels: np.ndarray
    channel_scale: np.ndarray
    channels: int
    inputs: int
    activation_limit: int
    nonfinite_channels: int

    @property
    def padded_inputs(self) -> int:
        """Inputs with padding: the row length of the matching `QuantizedRows`."""
        return self.panels.shape[1] * 2

    def share(self, thread: int, threads: int) -> range:
        """The panels of thread number `thread` of `threads`: shares differ by one panel at most."""
        count = len(self.panels)
        return range(count * thread // threads, count * (thread + 1) // threads)

    @property
    def nbytes(self) -> int:
        """Memory that the weight takes."""
        return self.panels.nbytes + self.channel_scale.nbytes


@dataclass(frozen=True, eq=False)
class QuantizedRows:
    """Activations as integers: a buffer that `quantize_rows` fills again and again.

    `values` int16 [rows, padded inputs], zeros in the padding; `scale` float32 [rows], NaN for a
    row that held a NaN or an infinity. `first(n)` is a view of the first n rows.
    """

    values: np.ndarray
    scale: np.ndarray
    inputs: int
    limit: int

    @classmethod
    def empty(cls, rows: int, weight: PackedWeight) -> "QuantizedRows":
        """Room for `rows` rows for `weight`, or for another one of equal inputs and limit."""
        values = _aligned_zeros((rows, weight.padded_inputs), np.int16)
        scale = _aligned_zeros((rows,), np.float32)
        return cls(values, scale, weight.inputs, weight.activation_limit)

    def first(self, rows: int) -> "QuantizedRows":
        """The first `rows` rows, sharing memory."""
        return QuantizedRows(self.values[:rows], self.scale[:rows], self.inputs, self.limit)


def pack(weight: np.ndarray) -> PackedWeight:
    """Quantise and pack float32 [channels, inputs]; the argument is only read."""
    channels, inputs = weight.shape
    if weight.dtype != np.float32 or channels == 0 or inputs == 0:
        raise ValueError(f"weight must be float32 and not empty, got {weight.dtype} {weight.shape}")
    padded_channels = _round_up(channels, PANEL_CHANNELS)
    padded_inputs = _round_up(inputs, INPUT_MULTIPLE)
    panels = _aligned_zeros(
        (padded_channels // PANEL_CHANNELS, padded_inputs // 2, 2 * PANEL_CHANNELS), np.int8
    )
    scale = _aligned_zeros((padded_channels,), np.float32)
    largest_sum, nonfinite = _pack_channels(np.ascontiguousarray(weight), panels, scale)
    limit = activation_limit(largest_sum)
    return PackedWeight(panels, scale, channels, inputs, limit, nonfinite)


def quantize_rows(x: np.ndarray, rows: QuantizedRows) -> None:
    """Fill `rows` from float32 [n, inputs], C-contiguous; `x` is only read."""
    if x.dtype != np.float32 or not x.flags.c_contiguous:
        raise ValueError("x must be float32 and C-contiguous")
    if x.shape != (len(rows.values), rows.inputs):
        raise ValueError(f"x is {x.shape}, the buffer takes {(len(rows.values), rows.inputs)}")
    _quantize_rows(x, rows.values, rows.scale, np.float32(rows.limit))


@kernel
def quantize_row(source, target, limit):
    """Round one row, for kernels that produce it: float32 [n] → int16 [≥ n]; return its scale.

    `limit` float32. `target` beyond n is left as it is. The scale is NaN, and the integers are
    zeros, if there is a NaN or an infinity.
    """
    # Without its sign a float's bits order as an integer, with infinity and NaN above all numbers:
    # one integer maximum, which vectorises and has no order, finds both the peak and the flaw.
    bits = source.view(np.int32)
    peak_bits = np.int32(0)
    for i in range(len(bits)):
        peak_bits = max(peak_bits, np.int32(bits[i] & np.int32(0x7FFFFFFF)))
    if peak_bits >= _INFINITY_BITS:
        target[: len(source)] = 0
        return np.float32(np.nan)
    found = np.int32(peak_bits)
    peak = found.view(np.float32)
    if peak < _SMALLEST:
        target[: len(source)] = 0
        return np.float32(0.0)
    factor = np.float32(limit / peak)
    for i in range(len(source)):
        target[i] = np.int16(np.int32(np.rint(source[i] * factor)))
    return np.float32(peak / limit)


@kernel
def _quantize_rows(x, values, scale, limit):
    for row in range(len(x)):
        scale[row] = quantize_row(x[row], values[row], limit)


@kernel
def _pack_channels(weight, panels, scale):
    """Fill zeroed panels and scales; return the largest Σ|q| of a channel, and the bad channels."""
    channels, inputs = weight.shape
    integers = np.zeros(inputs, np.int16)
    largest_sum, nonfinite = 0, 0
    for channel in range(channels):
        scale[channel] = quantize_row(weight[channel], integers, np.float32(WEIGHT_LIMIT))
        if np.isnan(scale[channel]):
            nonfinite += 1
        panel, lane = channel // PANEL_CHANNELS, channel % PANEL_CHANNELS
        total = 0
        for i in range(inputs):
            total += abs(integers[i])
            panels[panel, i // 2, 2 * lane + i % 2] = integers[i]
        largest_sum = max(largest_sum, total)
    return largest_sum, nonfinite


def _aligned_zeros(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros that start on a cache line."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(nbytes + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
