"""Matrix products of quantised rows with packed weights: the same bits at any batch size.

    Σ over inputs is an exact int32, then out = float32(Σ) · (row scale · channel scale).

Loops, from the outside (Goto & van de Geijn 2008): a block of rows that fits a small L2 cache;
the panels of 16 channels; the tiles of the block, which find the panel in L1. One or a few rows are
one tile, so the weights stream past once, in the order in which they lie in memory.
"""

from collections.abc import Callable

import numpy as np
from numba import njit

from ..cpu_level import CpuLevel, cpu_levels
from ..kernel_cache import kernel
from .microkernel import PAIR_BYTES, PANEL_CHANNELS, TALLEST, tile
from .quantize import PackedWeight, QuantizedRows, quantize_rows

_BLOCK_BYTES = 256 * 1024
"""Activations of one block of rows."""
_FARTHEST_AHEAD_BYTES = 32 * 1024
"""Weights are prefetched one panel ahead, but no farther than this."""
_WIDEST_PANEL_BYTES = 96 * 1024
"""Where many tiles share a panel, it is widened to int16 once, if the copy stays near the core."""
_PANEL_FLOAT_BYTES = 4 * PANEL_CHANNELS

_tile_avx512 = tile(CpuLevel.AVX512)
_tile_avx2 = tile(CpuLevel.AVX2)
_tile_generic = tile(CpuLevel.GENERIC)
_widened_avx512 = tile(CpuLevel.AVX512, widened=True)
_widened_avx2 = tile(CpuLevel.AVX2, widened=True)
_widened_generic = tile(CpuLevel.GENERIC, widened=True)
_TALLEST_AVX512 = TALLEST[CpuLevel.AVX512]
_TALLEST_AVX2 = TALLEST[CpuLevel.AVX2]
_TALLEST_GENERIC = TALLEST[CpuLevel.GENERIC]


def matmul(x: np.ndarray, weight: PackedWeight, out: np.ndarray) -> None:
    """out ← x · weightᵀ: float32 [rows, inputs] → float32 [rows, channels], both C-contiguous.

    Quantises x, then multiplies. Where several weights take the same rows, call `quantize_rows`
    once and `multiply` for each. A row with a NaN or an infinity gives NaNs, in that row only.
    """
    rows = QuantizedRows.empty(len(x), weight)
    quantize_rows(x, rows)
    multiply(rows, weight, out)


def multiply(
    rows: QuantizedRows,
    weight: PackedWeight,
    out: np.ndarray,
    *,
    panels: range | None = None,
    level: CpuLevel | None = None,
) -> None:
    """out ← rows · weightᵀ, float32 [rows, channels]; releases the interpreter lock meanwhile.

    `panels` (a contiguous range, see `PackedWeight.share`) limits the work to the channels of those
    panels: threads with disjoint ranges may run at once, and every channel is computed by one of
    them, from the same integers. `level` is the best that this CPU has, unless given.
    """
    _check(rows, weight, out)
    every = range(len(weight.panels))
    panels = every if panels is None else panels
    if panels.step != 1 or not 0 <= panels.start <= panels.stop <= len(every):
        raise ValueError(f"panels {panels} must be a contiguous part of {every}")
    level = cpu_levels()[0] if level is None else level
    KERNELS[level](
        rows.values,
        rows.scale,
        weight.panels,
        weight.channel_scale,
        out,
        panels.start,
        panels.stop,
    )


def _check(rows: QuantizedRows, weight: PackedWeight, out: np.ndarray) -> None:
    if rows.inputs != weight.inputs or rows.limit > weight.activation_limit:
        raise ValueError(
            f"rows have {rows.inputs} inputs and limit {rows.limit}, the weight takes "
            f"{weight.inputs} and at most {weight.activation_limit}"
        )
    if out.shape != (len(rows.values), weight.channels):
        raise ValueError(f"out is {out.shape}, needed {(len(rows.values), weight.channels)}")
    if out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out must be float32, C-contiguous and writable")


@njit(inline="always")
def _multiply(run, run_widened, tallest, rows, weight, out, part):
    """The loops around the tiles; `run…` are a level's tiles, written into the caller with them."""
    values, row_scale = rows
    panels, channel_scale = weight
    first, last = part
    row_count, channels = out.shape
    pairs = panels.shape[1]
    panel_bytes = pairs * PAIR_BYTES
    farthest = min(panel_bytes, _FARTHEST_AHEAD_BYTES)
    x_stride = values.shape[1] * 2
    block = max(_BLOCK_BYTES // x_stride // tallest, 1) * tallest
    edge = np.empty((tallest, PANEL_CHANNELS), np.float32)
    # From so many rows on, all tiles of a block have the tallest or the second tallest height.
    widen = row_count > tallest * (tallest - 1) and 2 * panel_bytes <= _WIDEST_PANEL_BYTES
    wide = np.empty(panel_bytes if widen else 1, np.int16)
    x, w, o = values.ctypes.data, panels.ctypes.data, out.ctypes.data
    rs, cs, e = row_scale.ctypes.data, channel_scale.ctypes.data, edge.ctypes.data
    for block_start in range(0, row_count, block):
        block_end = min(block_start + block, row_count)
        widen_block = widen and block_end - block_start > tallest * (tallest - 1)
        for panel in range(first, last):
            channel = panel * PANEL_CHANNELS
            whole = channel + PANEL_CHANNELS <= channels
            panel_at = w + panel * panel_bytes
            if widen_block:
                narrow = panels[panel].reshape(-1)
                for i in range(panel_bytes):
                    wide[i] = narrow[i]
            row = block_start
            while row < block_end:
                # Tiles of nearly equal height: 7 rows are 4 + 3, not 6 + 1.
                left = block_end - row
                height = -(-left // -(-left // tallest))
                at = x + row * x_stride
                scale, scales = rs + row * 4, cs + panel * _PANEL_FLOAT_BYTES
                target = o + (row * channels + channel) * 4 if whole else e
                stride = channels * 4 if whole else _PANEL_FLOAT_BYTES
                ahead = panel_at + farthest
                if widen_block:
                    tile_w = wide.ctypes.data
                    run_widened(
                        height, at, x_stride, tile_w, pairs, ahead, scale, scales, target, stride
                    )
                else:
                    run(height, at, x_stride, panel_at, pairs, ahead, scale, scales, target, stride)
                if not whole:
                    for r in range(height):
                        for c in range(channels - channel):
                            out[row + r, channel + c] = edge[r, c]
                row += height


@kernel
def _multiply_avx512(values, row_scale, panels, channel_scale, out, first, last):
    rows, weight = (values, row_scale), (panels, channel_scale)
    _multiply(_tile_avx512, _widened_avx512, _TALLEST_AVX512, rows, weight, out, (first, last))


@kernel
def _multiply_avx2(values, row_scale, panels, channel_scale, out, first, last):
    rows, weight = (values, row_scale), (panels, channel_scale)
    _multiply(_tile_avx2, _widened_avx2, _TALLEST_AVX2, rows, weight, out, (first, last))


@kernel
def _multiply_generic(values, row_scale, panels, channel_scale, out, first, last):
    rows, weight = (values, row_scale), (panels, channel_scale)
    _multiply(_tile_generic, _widened_generic, _TALLEST_GENERIC, rows, weight, out, (first, last))


KERNELS: dict[CpuLevel, Callable[..., None]] = {
    CpuLevel.AVX512: _multiply_avx512,
    CpuLevel.AVX2: _multiply_avx2,
    CpuLevel.GENERIC: _multiply_generic,
}
