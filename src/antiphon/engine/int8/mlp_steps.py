"""Steps of the forward pass that dense layers and experts share: products, and the gate."""

from numba.np.numpy_support import carray

from ..cpu_level import cpu_levels
from ..kernel_cache import kernel
from ..row_kernels import gated_gelu, gated_silu
from .addresses import bytes_at, call, floats_at
from .gemm import KERNELS
from .microkernel import PANEL_CHANNELS
from .quantize import quantize_row

_multiply = KERNELS[cpu_levels()[0]]

ALONE = (0, 1, 0)
"""A team of one thread."""


@kernel
def meet(team):
    """Wait for the other threads."""
    if team[1] > 1:
        call(team[2])


@kernel
def share_of(count, team):
    """This thread's part of 0 … count − 1: first, one past the last."""
    return count * team[0] // team[1], count * (team[0] + 1) // team[1]


@kernel
def project(values, scale, weight, bias_at, out, team):
    """out ← rows · weightᵀ + bias for this thread's panels; `weight`: panels and scales."""
    rows, channels = out.shape
    panel_count = -(-channels // PANEL_CHANNELS)
    panels = carray(bytes_at(weight[0]), (panel_count, values.shape[1] // 2, 2 * PANEL_CHANNELS))
    scales = carray(floats_at(weight[1]), (panel_count * PANEL_CHANNELS,))
    first, last = share_of(panel_count, team)
    _multiply(values, scale, panels, scales, out, first, last)
    if bias_at != 0:
        bias = carray(floats_at(bias_at), (channels,))
        for row in range(rows):
            for channel in range(first * PANEL_CHANNELS, min(last * PANEL_CHANNELS, channels)):
                out[row, channel] += bias[channel]


@kernel
def gate_round(gate_up, gelu, limit, values, scale, gated, team):
    """Rounded rows ← activation(gate) · up: this thread's rows; `gated` is overwritten."""
    first, last = share_of(len(gate_up), team)
    for row in range(first, last):
        if gelu:
            gated_gelu(gate_up[row : row + 1], gated)
        else:
            gated_silu(gate_up[row : row + 1], gated)
        scale[row] = quantize_row(gated[0], values[row], limit)
