"""A fused row kernel gives the integers of its two steps done apart."""

import numpy as np
import pytest

from antiphon.engine.int8 import (
    QuantizedRows,
    norm_quantize,
    pack,
    quantize_rows,
    silu_quantize,
)
from antiphon.engine.row_kernels import gated_silu, rms_norm

WIDTHS = pytest.mark.parametrize("width", [16, 80, 576])


def _buffer(rows: int, width: int) -> QuantizedRows:
    return QuantizedRows.empty(rows, pack(np.ones((1, width), np.float32)))


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32) * 4


def _equal(a: QuantizedRows, b: QuantizedRows) -> bool:
    return np.array_equal(a.values, b.values) and a.scale.tobytes() == b.scale.tobytes()


@WIDTHS
@pytest.mark.parametrize("rows", [1, 7])
def test_norm_quantize_is_norm_then_quantize(width, rows):
    hidden, gain = _random(rows, width), _random(width)
    before = hidden.copy()
    fused, apart = _buffer(rows, width), _buffer(rows, width)
    norm_quantize(hidden, gain, 1e-5, fused)
    assert np.array_equal(hidden, before)
    normed = np.empty_like(hidden)
    rms_norm(hidden, gain, np.float32(1e-5), width, normed)
    quantize_rows(normed, apart)
    assert _equal(fused, apart)


@WIDTHS
@pytest.mark.parametrize("rows", [1, 7])
def test_silu_quantize_is_silu_then_quantize(width, rows):
    gate_up = _random(rows, 2 * width)
    before = gate_up.copy()
    fused, apart = _buffer(rows, width), _buffer(rows, width)
    silu_quantize(gate_up, fused)
    assert np.array_equal(gate_up, before)
    gated = np.empty((rows, width), np.float32)
    gated_silu(gate_up, gated)
    quantize_rows(gated, apart)
    assert _equal(fused, apart)


@pytest.mark.parametrize("flaw", [np.nan, np.inf])
def test_a_flawed_row_is_marked(flaw):
    hidden, gate_up = _random(3, 32), _random(3, 64)
    hidden[1, 5] = gate_up[1, 40] = flaw
    rows = _buffer(3, 32)
    for fill in (
        lambda: norm_quantize(hidden, np.ones(32, np.float32), 1e-5, rows),
        lambda: silu_quantize(gate_up, rows),
    ):
        fill()
        assert np.isnan(rows.scale).tolist() == [False, True, False]


def test_refuses_what_does_not_fit():
    rows = _buffer(2, 32)
    with pytest.raises(ValueError, match=r"needed C-contiguous float32 \(2, 64\)"):
        silu_quantize(_random(2, 32), rows)
    with pytest.raises(ValueError, match=r"needed C-contiguous float32 \(2, 32\)"):
        norm_quantize(_random(32, 2).T, _random(32), 1e-5, rows)
    with pytest.raises(ValueError, match=r"needed C-contiguous float32 \(32,\)"):
        norm_quantize(_random(2, 32), _random(33), 1e-5, rows)
