"""Percentiles and what is told of many values."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Distribution, percentile

VALUES = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60)


@given(VALUES, st.floats(0.0, 1.0))
@settings(deadline=None, max_examples=200)
def test_equal_numpys(values: list[float], part: float) -> None:
    expected = float(np.quantile(values, part))
    assert percentile(sorted(values), part) == pytest.approx(expected, rel=1e-12, abs=1e-9)


@given(VALUES)
@settings(deadline=None, max_examples=200)
def test_rise_and_stay_within_the_values(values: list[float]) -> None:
    told = Distribution.of(values)
    assert told is not None
    order = [min(values), told.p50, told.p90, told.p95, told.p99, told.max]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(order))
    assert told.max == max(values)
    assert told.mean == pytest.approx(float(np.mean(values)), rel=1e-9)
    assert told.count == len(values)


def test_of_thousands() -> None:
    told = Distribution.of(float(value) for value in range(10_001))
    assert told == Distribution(
        count=10_001, mean=5000.0, p50=5000.0, p90=9000.0, p95=9500.0, p99=9900.0, max=10_000.0
    )


def test_of_nothing_there_is_none() -> None:
    assert Distribution.of([]) is None


def test_a_value_that_never_came_is_the_largest() -> None:
    told = Distribution.of([1.0, float("inf"), float("inf")])
    assert told is not None
    assert told.p50 == told.p99 == told.max == float("inf")
    assert percentile([1.0, float("inf")], 0.0) == 1.0
