"""Our XXH3 against the library's: as a hash alone, and while copying."""

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from antiphon.store.transfer.xxh3 import LEAST_BYTES, STRIPE_BYTES, hashing

_read, _copy = hashing(copies=False), hashing(copies=True)
MOST_STRIPES = 70
"""More than four blocks of 16."""


@njit
def read(source, size):
    return _read(source, size)


@njit
def copy(source, target, size):
    return _copy(source, target, size)


def aligned(stripes: int) -> np.ndarray:
    memory = np.zeros((stripes + 1) * STRIPE_BYTES, np.uint8)
    first = -memory.ctypes.data % STRIPE_BYTES
    return memory[first : first + stripes * STRIPE_BYTES]


@settings(deadline=None, max_examples=200)
@given(st.integers(LEAST_BYTES // STRIPE_BYTES, MOST_STRIPES), st.integers(0, 2**32))
def test_equals_the_library_and_copies_exactly(stripes: int, seed: int) -> None:
    source, target = aligned(stripes), aligned(stripes + 2)
    source[:] = np.random.default_rng(seed).integers(0, 256, source.shape, np.uint8)
    expected = xxhash.xxh3_64_intdigest(source)
    assert read(source.ctypes.data, source.nbytes) == expected
    inner = target[STRIPE_BYTES:-STRIPE_BYTES]
    target[:] = 7
    assert copy(source.ctypes.data, inner.ctypes.data, source.nbytes) == expected
    assert np.array_equal(inner, source)
    assert (target[:STRIPE_BYTES] == 7).all()
    assert (target[-STRIPE_BYTES:] == 7).all()


@pytest.mark.parametrize("fill", [0, 255])
def test_extreme_contents_of_a_large_page(fill: int) -> None:
    source = aligned(368_640 // STRIPE_BYTES)
    source[:] = fill
    assert read(source.ctypes.data, source.nbytes) == xxhash.xxh3_64_intdigest(source)


def test_every_bit_counts() -> None:
    source = aligned(LEAST_BYTES // STRIPE_BYTES)
    seen = {read(source.ctypes.data, source.nbytes)}
    for bit in range(8 * source.nbytes):
        source[bit // 8] ^= 1 << bit % 8
        seen.add(read(source.ctypes.data, source.nbytes))
        source[bit // 8] ^= 1 << bit % 8
    assert len(seen) == 8 * source.nbytes + 1
