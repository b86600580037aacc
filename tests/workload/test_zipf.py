from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.draws import Draws
from antiphon.workload.zipf import Zipf


@settings(deadline=None)
@given(st.integers(1, 60), st.floats(0, 5), st.data(), st.integers(0, 2**40))
def test_different_ranks_are_drawn_up_to_all(
    count: int, exponent: float, data: st.DataObject, seed: int
) -> None:
    many = data.draw(st.integers(1, count))
    drawn = Zipf(count, exponent).draw(many, Draws(seed), "test")
    assert len(set(drawn)) == len(drawn) == many
    assert all(0 <= rank < count for rank in drawn)


def test_ranks_come_as_often_as_the_law_says() -> None:
    zipf, draws = Zipf(10, 1.0), Draws(1)
    seen = Counter(zipf.draw(1, draws, number)[0] for number in range(20_000))
    harmonic = sum(1 / rank for rank in range(1, 11))
    for rank in range(10):
        assert seen[rank] / 20_000 == pytest.approx(1 / (rank + 1) / harmonic, rel=0.1)


def test_a_second_draw_is_by_the_weights_that_are_left() -> None:
    """Three ranks of weights 1, 1/2, 1/3: after rank 1, rank 0 comes with 1/(4/3) = 3/4."""
    zipf, draws = Zipf(3, 1.0), Draws(1)
    pairs = Counter(tuple(zipf.draw(2, draws, number)) for number in range(40_000))
    after = pairs[1, 0] + pairs[1, 2]
    assert pairs[1, 0] / after == pytest.approx(0.75, abs=0.02)
    assert after / 40_000 == pytest.approx((1 / 2) / (11 / 6), abs=0.02)


def test_without_an_exponent_all_are_alike() -> None:
    zipf, draws = Zipf(4, 0.0), Draws(1)
    seen = Counter(zipf.draw(1, draws, number)[0] for number in range(20_000))
    assert all(count / 20_000 == pytest.approx(0.25, abs=0.02) for count in seen.values())
