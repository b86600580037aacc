"""Row kernels that end in integers: one call where there would be two, no float row in between.

Each computes a row with the same code as the float engine and rounds it while it is in the
first-level cache, so its integers are those of the two steps done apart.
"""

import numpy as np

from ..kernel_cache import kernel
from ..row_kernels import gated_silu, rms_norm
from .quantize import QuantizedRows, quantize_row


def norm_quantize(
    hidden: np.ndarray, gain: np.ndarray, epsilon: float, rows: QuantizedRows
) -> None:
    """Fill `rows` with RMSNorm(hidden)·gain: float32 [n, inputs] and [inputs], both only read."""
    _check(hidden, (len(rows.values), rows.inputs))
    _check(gain, (rows.inputs,))
    _norm_quantize(
        hidden, gain, np.float32(epsilon), rows.values, rows.scale, np.float32(rows.limit)
    )


def silu_quantize(gate_up: np.ndarray, rows: QuantizedRows) -> None:
    """Fill `rows` with silu(gate)·up: float32 [n, 2·inputs], gate first; it is only read."""
    _check(gate_up, (len(rows.values), 2 * rows.inputs))
    _silu_quantize(gate_up, rows.values, rows.scale, np.float32(rows.limit))


def _check(array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.float32 or not array.flags.c_contiguous:
        raise ValueError(
            f"needed C-contiguous float32 {shape}, got {array.dtype} {array.shape}"
            f" with strides {array.strides}"
        )


@kernel
def _norm_quantize(hidden, gain, epsilon, values, scale, limit):
    width = hidden.shape[1]
    normed = np.empty((1, width), np.float32)
    for row in range(len(hidden)):
        rms_norm(hidden[row : row + 1], gain, epsilon, width, normed)
        scale[row] = quantize_row(normed[0], values[row], limit)


@kernel
def _silu_quantize(gate_up, values, scale, limit):
    gated = np.empty((1, gate_up.shape[1] // 2), np.float32)
    for row in range(len(gate_up)):
        gated_silu(gate_up[row : row + 1], gated)
        scale[row] = quantize_row(gated[0], values[row], limit)
