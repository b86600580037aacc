"""Products and sines whose bits are the same everywhere: held to what IEEE 754 says of them."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import BugError
from antiphon.store.codec.matrix_product import PANEL, PackedMatrix
from antiphon.store.codec.sines import cosines_and_sines


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a·b + c of float32, rounded once: in float64 rounded to odd, then to float32 (Boldo and
    Melquiond 2008, "Emulation of FMA and correctly rounded sums")."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    other = total - product
    lost = (product - (total - other)) + (addend - other)
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    total = np.where((lost != 0) & even, np.nextafter(total, towards), total)
    return total.astype(np.float32)


@given(st.integers(0, 2**32), st.integers(0, 14), st.integers(0, 9), st.integers(1, 2 * PANEL + 3))
@settings(deadline=None, max_examples=60)
def test_a_product_is_one_chain_of_fused_multiply_adds(
    seed: int, tokens: int, depth: int, columns: int
) -> None:
    """Of numbers of very different sizes, so that any other order gives other bits."""
    chance = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray:
        sizes = 2.0 ** chance.integers(-20, 20, shape)
        return (chance.normal(size=shape) * sizes).astype(np.float32)

    rows, matrix, start = drawn(tokens, depth), drawn(depth, columns), drawn(columns)
    expected = np.broadcast_to(start, (tokens, columns)).copy()
    for k in range(depth):
        expected = fused(rows[:, k, None], matrix[None, k], expected)
    packed = PackedMatrix(matrix, start)
    found = packed.product(rows)
    assert found.shape == (tokens, packed.width)
    assert found[:, :columns].tobytes() == expected.tobytes()
    assert not found[:, columns:].any()


def test_rows_of_another_depth_are_refused() -> None:
    with pytest.raises(BugError, match="4 rows"):
        PackedMatrix(np.zeros((4, 8), np.float32)).product(np.zeros((2, 5), np.float32))


@given(st.floats(0, 2**31, width=32))
def test_sines_are_those_of_the_angle(angle: float) -> None:
    """Against the series in 60 digits."""
    getcontext().prec = 60
    two_pi = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")
    x = Decimal(angle) % two_pi
    term, sums = Decimal(1), [Decimal(0), Decimal(0)]
    for n in range(60):
        sums[n % 2] += term * (-1) ** (n // 2)
        term *= x / (n + 1)
    cosine, sine = cosines_and_sines(np.array([angle]))
    assert cosine[0] == pytest.approx(float(sums[0]), abs=1e-12)
    assert sine[0] == pytest.approx(float(sums[1]), abs=1e-12)
