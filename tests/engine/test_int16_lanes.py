"""Rounding to halves of words, their peaks, and powers of two."""

import numpy as np
import pytest
import torch
from numba import njit

from antiphon.engine import int16_lanes as halves
from antiphon.engine import lanes as simd
from antiphon.engine.int16_tile import row_peaks, transpose_pairs


@njit
def rounded_and_stored(values, factor, target):
    for at in range(0, values.size, simd.LANES):
        words = halves.rounded(simd.load(values, at), simd.splat(factor))
        halves.store_halves(target, at, words)


def test_rounding_is_to_nearest_even() -> None:
    values = np.array([0, 0.5, 1.5, 2.5, -0.5, -1.5, 8191, -8191, 2047.5, -3.2, 0.49] + [7] * 5)
    found = np.zeros(16, np.int16)
    rounded_and_stored(values.astype(np.float32), np.float32(1.0), found)
    assert found.tolist() == np.rint(values).astype(np.int16).tolist()


def test_rounding_a_row_is_that_of_its_product() -> None:
    values = torch.randn(1600, generator=torch.Generator().manual_seed(1)).numpy()
    found = np.zeros(1600, np.int16)
    rounded_and_stored(values, np.float32(1234.5), found)
    exact = values.astype(np.float64) * 1234.5
    assert found.tolist() == np.rint(exact).astype(np.int16).tolist()


@njit
def powers(values, target):
    for at in range(0, values.size, simd.LANES):
        simd.store(target, at, halves.power_of_two(simd.load(values, at)))


def test_powers_of_two() -> None:
    values = np.linspace(-126, 1, 16 * 5000, dtype=np.float32)
    found = np.empty_like(values)
    powers(values, found)
    assert np.abs(found / np.exp2(values.astype(np.float64)) - 1).max() < 3e-6
    special = np.array([0, -200, -np.inf, np.nan] + [-1.0] * 12, np.float32)
    powers(special, found[:16])
    assert found[0] == 1 and found[4] == 0.5
    assert 0 < found[1] == found[2] < 2e-38
    assert np.isnan(found[3])


@njit
def peaks_of(rows, starts, width, target):
    simd.store(target, 0, row_peaks(rows, starts, 0, 3, width))


@pytest.mark.parametrize("width", [16, 48, 80, 128])
def test_peaks_of_rows(width: int) -> None:
    """Rows anywhere in memory; infinity and NaN are larger than any number."""
    generator = torch.Generator().manual_seed(width)
    rows = torch.randn(20 * 160, generator=generator).bfloat16()
    rows[3 + 160 : 3 + 160 + width] = 0
    rows[3 + 2 * 160 + 9] = torch.nan
    rows[3 + 4 * 160 + width - 1] = -torch.inf
    rows[3 + width] = 1000  # just behind row 0
    starts = np.arange(16) * 160
    found = np.empty(16, np.float32)
    peaks_of(rows.view(torch.uint16).numpy(), starts, width, found)
    expected = torch.stack([rows[at + 3 : at + 3 + width].float().abs().amax() for at in starts])
    np.testing.assert_array_equal(found, expected.numpy())


@njit
def paired_columns(rows, starts, target):
    words = np.empty(8 * 16, np.float32)
    transpose_pairs(rows, starts, 0, 0, words, 0, 16)
    for pair in range(8):
        both = simd.load(words, pair * 16)
        simd.store(target, 2 * pair * 16, halves.lower(both))
        simd.store(target, (2 * pair + 1) * 16, halves.upper(both))


def test_pairs_are_neighbouring_columns() -> None:
    rows = torch.randn(16, 16, generator=torch.Generator().manual_seed(2)).bfloat16()
    found = np.empty(256, np.float32)
    order = np.random.default_rng(0).permutation(16)
    paired_columns(rows.view(torch.uint16).numpy().reshape(-1), order * 16, found)
    np.testing.assert_array_equal(found.reshape(16, 16), rows.float().numpy()[order].T)


@njit
def joined(low, high, target):
    one = simd.splat(np.float32(1.0))
    words = halves.paired(
        halves.rounded(simd.load(low, 0), one), halves.rounded(simd.load(high, 0), one)
    )
    simd.store(target, 0, words)


def test_joining_two_integers() -> None:
    low, high = np.arange(-8, 8, dtype=np.float32), np.arange(100, 116, dtype=np.float32) * -70
    found = np.empty(16, np.float32)
    joined(low, high, found)
    expected = np.stack([low, high], axis=1).astype(np.int16)
    np.testing.assert_array_equal(found.view(np.int16).reshape(16, 2), expected)
