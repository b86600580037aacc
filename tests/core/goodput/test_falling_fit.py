"""The falling curve closest to noisy points."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput.falling_fit import falling_fit

POINTS = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 1000)), max_size=12)


def test_neighbours_in_the_wrong_order_are_taken_together() -> None:
    assert falling_fit([(1.0, 10), (0.8, 30), (0.9, 10), (0.5, 5)]) == pytest.approx(
        (1.0, 0.825, 0.825, 0.5)
    )


@given(POINTS)
@settings(deadline=None, max_examples=150)
def test_it_falls_and_keeps_the_mean(points: list[tuple[float, int]]) -> None:
    fitted = falling_fit(points)
    assert len(fitted) == len(points)
    assert all(a >= b for a, b in pairwise(fitted))
    weights = [weight for _value, weight in points]
    assert sum(map(float.__mul__, fitted, map(float, weights))) == pytest.approx(
        sum(value * weight for value, weight in points)
    )


@given(POINTS)
@settings(deadline=None, max_examples=200)
def test_what_falls_stays_as_it_is(points: list[tuple[float, int]]) -> None:
    falling = sorted(points, key=lambda point: -point[0])
    assert falling_fit(falling) == tuple(value for value, _weight in falling)


@given(POINTS, st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12))
@settings(deadline=None, max_examples=150)
def test_no_other_falling_curve_is_closer(
    points: list[tuple[float, int]], other: list[float]
) -> None:
    def far(curve: list[float]) -> float:
        return sum(
            weight * (value - at) ** 2 for (value, weight), at in zip(points, curve, strict=True)
        )

    falling = sorted(other, reverse=True)[: len(points)]
    assert far(list(falling_fit(points))) <= far(falling) + 1e-9
