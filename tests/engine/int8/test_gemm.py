"""The product is exact, and its bits do not depend on batch, tile, instruction set or threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.int8 import (
    CpuLevel,
    PackedWeight,
    QuantizedRows,
    cpu_levels,
    matmul,
    multiply,
    pack,
    quantize_rows,
)

LEVELS = pytest.mark.parametrize("level", cpu_levels(), ids=lambda level: level.value)
ROW_COUNTS = (1, 2, 3, 7, 8, 32, 33, 512)


def _integers(weight: PackedWeight) -> np.ndarray:
    """Weights as int64 [channels, inputs]: the layout of the documentation, undone."""
    pairs = weight.panels.astype(np.int64).reshape(-1, weight.padded_inputs // 2, 16, 2)
    by_channel = pairs.transpose(0, 2, 1, 3).reshape(-1, weight.padded_inputs)
    return by_channel[: weight.channels, : weight.inputs]


def _oracle(rows: QuantizedRows, weight: PackedWeight) -> np.ndarray:
    """The same in numpy, with sums in int64."""
    sums = rows.values[:, : rows.inputs].astype(np.int64) @ _integers(weight).T
    assert np.abs(sums).max() < 2**31
    scales = rows.scale[:, None] * weight.channel_scale[None, : weight.channels]
    return sums.astype(np.int32).astype(np.float32) * scales


def _product(rows: QuantizedRows, weight: PackedWeight, level: CpuLevel) -> np.ndarray:
    """`multiply` into the middle of a larger array, whose rest must not change."""
    guard = np.full((len(rows.values) + 2, weight.channels), 7.0, np.float32)
    multiply(rows, weight, guard[1:-1], level=level)
    assert (guard[0] == 7).all() and (guard[-1] == 7).all()
    return guard[1:-1]


def _random(rows: int, channels: int, inputs: int, seed: int = 0):
    """Rows of very different sizes, as activations have them, and a weight."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, inputs)) * np.exp(rng.standard_normal((rows, 1)) * 3)
    return x.astype(np.float32), pack(rng.standard_normal((channels, inputs)).astype(np.float32))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


@LEVELS
@settings(deadline=None, max_examples=150)
@given(
    rows=st.integers(1, 40),
    channels=st.integers(1, 70),
    inputs=st.integers(1, 100),
    extremes=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_the_int64_oracle(level, rows, channels, inputs, extremes, seed):
    x, weight = _random(rows, channels, inputs, seed)
    quantized = QuantizedRows.empty(rows, weight)
    quantize_rows(x, quantized)
    rng = np.random.default_rng(seed)
    for values, limit in ((quantized.values[:, :inputs], 2047), (weight.panels, 127)):
        chosen = (rng.random(values.shape) < extremes) & (values != 0)
        values[chosen] = np.where(rng.random(values.shape) < 0.5, limit, -limit)[chosen]
    assert _same_bits(_product(quantized, weight, level), _oracle(quantized, weight))


@LEVELS
@pytest.mark.parametrize("inputs", [8260, 8261, 16528, 30000])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 20])
def test_the_largest_possible_sums_do_not_overflow(level, inputs, rows):
    weight = np.ones((17, inputs), np.float32)
    weight[1::2] = -1
    weight[4, ::2] = -1
    packed = pack(weight)
    quantized = QuantizedRows.empty(rows, packed)
    x = np.ones((rows, inputs), np.float32)
    x[1::2] = -1
    quantize_rows(x, quantized)
    assert quantized.values[0, 0] == packed.activation_limit
    assert _same_bits(_product(quantized, packed, level), _oracle(quantized, packed))
    assert abs(_product(quantized, packed, level)[0, 0] - inputs) < inputs * 1e-6


@LEVELS
@pytest.mark.parametrize("channels, inputs", [(576, 576), (50, 1536), (33, 37), (1, 1)])
def test_a_row_has_the_same_bits_in_any_batch(level, channels, inputs):
    x, weight = _random(max(ROW_COUNTS), channels, inputs)
    alone = np.empty((1, channels), np.float32)
    for count in ROW_COUNTS:
        together = np.empty((count, channels), np.float32)
        start = len(x) - count
        rows = QuantizedRows.empty(count, weight)
        quantize_rows(x[start:], rows)
        multiply(rows, weight, together, level=level)
        for row in sorted({0, 1, count // 2, count - 2, count - 1} & set(range(count))):
            matmul(x[start + row : start + row + 1], weight, alone)
            assert _same_bits(together[row], alone[0]), (count, row)


def test_all_levels_agree_on_real_shapes():
    for channels, inputs in ((960, 576), (3072, 576), (576, 1536)):
        x, weight = _random(33, channels, inputs)
        rows = QuantizedRows.empty(33, weight)
        quantize_rows(x, rows)
        first, *others = (_product(rows, weight, level) for level in cpu_levels())
        assert all(_same_bits(first, other) for other in others)


@pytest.mark.parametrize("rows", [1, 13])
def test_any_number_of_threads_gives_the_same_bits(rows):
    x, weight = _random(rows, 330, 100)
    quantized = QuantizedRows.empty(rows, weight)
    quantize_rows(x, quantized)
    expected = _product(quantized, weight, cpu_levels()[0])
    for threads in (1, 2, 3, 4, 40):
        out = np.full((rows, 330), np.nan, np.float32)
        with ThreadPoolExecutor(threads) as pool:
            for done in [
                pool.submit(multiply, quantized, weight, out, panels=weight.share(thread, threads))
                for thread in range(threads)
            ]:
                done.result()
        assert _same_bits(out, expected), threads


@LEVELS
def test_a_range_of_panels_touches_its_channels_only(level):
    x, weight = _random(5, 50, 64)
    rows = QuantizedRows.empty(5, weight)
    quantize_rows(x, rows)
    whole = _product(rows, weight, level)
    for panels in (range(0, 1), range(1, 3), range(3, 4), range(2, 2)):
        out = np.full((5, 50), 7.0, np.float32)
        multiply(rows, weight, out, panels=panels, level=level)
        inside = slice(panels.start * 16, panels.stop * 16)
        assert _same_bits(out[:, inside], whole[:, inside])
        out[:, inside] = 7
        assert (out == 7).all()


@LEVELS
def test_a_flaw_stays_in_its_row_and_its_channel(level):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((9, 40)).astype(np.float32)
    w = rng.standard_normal((20, 40)).astype(np.float32)
    clean = np.empty((9, 20), np.float32)
    matmul(x, pack(w), clean)
    x[4, 7], w[11, 3] = np.inf, np.nan
    weight = pack(w)
    rows = QuantizedRows.empty(9, weight)
    quantize_rows(x, rows)
    out = _product(rows, weight, level)
    flawed = np.zeros((9, 20), bool)
    flawed[4], flawed[:, 11] = True, True
    assert np.array_equal(np.isnan(out), flawed)
    assert np.array_equal(out[~flawed], clean[~flawed])


def test_close_to_the_float_product():
    x, _ = _random(16, 1, 576)
    w = np.random.default_rng(5).standard_normal((64, 576)).astype(np.float32)
    out = np.empty((16, 64), np.float32)
    matmul(x, pack(w), out)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.linalg.norm(out - exact) < 0.01 * np.linalg.norm(exact)


def test_no_rows_are_no_work():
    _, weight = _random(1, 20, 30)
    matmul(np.empty((0, 30), np.float32), weight, np.empty((0, 20), np.float32))


def test_refuses_what_does_not_fit():
    x, weight = _random(2, 20, 30)
    other = pack(np.ones((20, 31), np.float32))
    rows = QuantizedRows.empty(2, weight)
    out = np.empty((2, 20), np.float32)
    with pytest.raises(ValueError, match="rows have 30 inputs"):
        multiply(rows, other, out)
    with pytest.raises(ValueError, match=r"out is \(2, 21\)"):
        multiply(rows, weight, np.empty((2, 21), np.float32))
    with pytest.raises(ValueError, match="out must be float32"):
        multiply(rows, weight, np.empty((2, 20)))
    with pytest.raises(ValueError, match="out must be float32"):
        multiply(rows, weight, np.empty((20, 2), np.float32).T)
    for panels in (range(0, 3), range(-1, 1), range(0, 2, 2)):
        with pytest.raises(ValueError, match="panels"):
            multiply(rows, weight, out, panels=panels)
    narrow = pack(np.ones((1, 30000), np.float32))
    with pytest.raises(ValueError, match="at most 511"):
        multiply(
            QuantizedRows.empty(1, pack(np.eye(1, 30000, dtype=np.float32))),
            narrow,
            np.empty((1, 1), np.float32),
        )
    matmul(x, weight, out)
