"""Rounding to integers: bounded error, row by row, and no number made out of a NaN."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from antiphon.engine.int8 import PackedWeight, QuantizedRows, pack, quantize_rows
from antiphon.engine.int8.quantize import activation_limit

_finite = st.floats(-(2.0**127), 2.0**127, width=32)


def _weight(inputs: int) -> PackedWeight:
    return pack(np.ones((1, inputs), np.float32))


def _rows_of(x: np.ndarray) -> QuantizedRows:
    rows = QuantizedRows.empty(len(x), _weight(x.shape[1]))
    quantize_rows(x, rows)
    return rows


@settings(deadline=None, max_examples=100)
@given(
    arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 40)), elements=_finite),
)
def test_a_row_is_within_half_a_step_of_its_integers(x):
    before = x.copy()
    rows = _rows_of(x)
    values, scale = rows.values.astype(np.float64), rows.scale.astype(np.float64)
    inputs = x.shape[1]
    assert np.array_equal(x, before)
    assert np.abs(values).max() <= rows.limit == 2047
    assert not values[:, inputs:].any()
    error = np.abs(values[:, :inputs] * scale[:, None] - x)
    largest = np.abs(x.astype(np.float64)).max(axis=1, keepdims=True)
    step = np.where(largest < 1e-30, 2e-30, largest / 2047)
    assert (error <= step * (0.5 + 2047 * 2.0**-22)).all()


@settings(deadline=None, max_examples=50)
@given(
    arrays(np.float32, st.tuples(st.integers(2, 40), st.integers(1, 70)), elements=_finite),
    st.data(),
)
def test_a_row_does_not_depend_on_the_others(x, data):
    row = data.draw(st.integers(0, len(x) - 1))
    together, alone = _rows_of(x), _rows_of(x[row : row + 1].copy())
    assert np.array_equal(together.values[row], alone.values[0])
    assert together.scale[row].tobytes() == alone.scale[0].tobytes()


@pytest.mark.parametrize("flaw", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 16, 36])
def test_a_row_with_a_flaw_is_marked_and_leaves_the_others_alone(flaw, at):
    x = np.linspace(-3, 3, 3 * 37, dtype=np.float32).reshape(3, 37)
    clean = _rows_of(x)
    x[1, at] = flaw
    rows = _rows_of(x)
    assert np.isnan(rows.scale).tolist() == [False, True, False]
    assert not rows.values[1].any()
    assert np.array_equal(rows.values[::2], clean.values[::2])
    assert np.array_equal(rows.scale[::2], clean.scale[::2])


def test_a_buffer_forgets_the_row_before():
    rows = QuantizedRows.empty(1, _weight(9))
    for content in (np.full((1, 9), 5.0), np.full((1, 9), np.nan), np.zeros((1, 9))):
        quantize_rows(content.astype(np.float32), rows)
    assert not rows.values.any() and rows.scale[0] == 0


def test_tiny_rows_are_zero_and_huge_ones_keep_their_digits():
    x = np.array([[1e-39, -1e-40, 0], [3.4e38, -3.4e38, 1e38]], np.float32)
    rows = _rows_of(x)
    assert rows.scale[0] == 0 and not rows.values[0].any()
    assert rows.values[1, :3].tolist() == [2047, -2047, 602]


def test_the_integer_nearest_to_a_tie_is_the_even_one():
    x = np.array([[2047.0, 0.5, 1.5, 2.5, -0.5, -2.5]], np.float32)
    assert _rows_of(x).values[0, :6].tolist() == [2047, 0, 2, 2, 0, -2]


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_panels_hold_the_documented_element(channels, inputs, seed):
    weight = np.random.default_rng(seed).standard_normal((channels, inputs)).astype(np.float32)
    before = weight.copy()
    packed = pack(weight)
    assert np.array_equal(weight, before)
    assert packed.panels.ctypes.data % 64 == 0
    scale = np.abs(weight).max(axis=1) / np.float32(127)
    expected = np.zeros((packed.panels.shape[0] * 16, packed.padded_inputs), np.int64)
    factor = np.float32(127) / np.abs(weight).max(axis=1, keepdims=True)
    expected[:channels, :inputs] = np.rint(weight * factor)
    assert np.array_equal(packed.channel_scale[:channels], scale)
    assert not packed.channel_scale[channels:].any()
    by_element = packed.panels.reshape(-1, packed.padded_inputs // 2, 16, 2).transpose(0, 2, 1, 3)
    assert np.array_equal(by_element.reshape(expected.shape), expected)


def test_a_flawed_channel_is_counted_and_marked():
    weight = np.ones((3, 10), np.float32)
    weight[1, 4] = np.nan
    weight[2, 9] = np.inf
    packed = pack(weight)
    assert packed.nonfinite_channels == 2
    assert np.isnan(packed.channel_scale[:3]).tolist() == [False, True, True]


@given(st.integers(0, 2**34))
def test_the_activation_limit_is_the_largest_safe_one(row_sum):
    if row_sum > 2**31 - 1:
        with pytest.raises(ValueError, match="int32"):
            activation_limit(row_sum)
        return
    limit = activation_limit(row_sum)
    assert limit * row_sum < 2**31
    assert limit == 2047 or (2 * limit + 1) * row_sum >= 2**31


def test_limits_follow_the_largest_channel():
    for inputs, limit in ((8260, 2047), (8320, 1023), (16528, 1023), (16656, 511)):
        weight = np.full((2, inputs), -1.0, np.float32)
        weight[0, 1:] = 0.001
        assert pack(weight).activation_limit == limit


@pytest.mark.parametrize(
    "weight",
    [np.ones((2, 2)), np.ones((0, 4), np.float32), np.ones((4, 0), np.float32)],
    ids=["float64", "no channels", "no inputs"],
)
def test_pack_refuses(weight):
    with pytest.raises(ValueError, match="weight must be float32 and not empty"):
        pack(weight)


def test_quantize_rows_refuses():
    rows = QuantizedRows.empty(2, _weight(4))
    with pytest.raises(ValueError, match=r"x is \(2, 5\), the buffer takes \(2, 4\)"):
        quantize_rows(np.ones((2, 5), np.float32), rows)
    with pytest.raises(ValueError, match="C-contiguous"):
        quantize_rows(np.ones((4, 2), np.float32).T, rows)
    with pytest.raises(ValueError, match="float32"):
        quantize_rows(np.ones((2, 4)), rows)
