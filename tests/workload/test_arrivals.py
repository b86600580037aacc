from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.workload import poisson


@given(st.integers(0, 2**40), st.floats(0.01, 1000))
def test_times_grow_and_are_the_same_each_time(seed: int, rate: float) -> None:
    times = list(islice(poisson(rate, seed), 50))
    assert times == list(islice(poisson(rate, seed), 50))
    assert all(0 <= a < b for a, b in pairwise(times))


def test_the_mean_rate_is_what_was_asked_for_and_gaps_are_memoryless() -> None:
    times = list(islice(poisson(10.0, 1), 20_000))
    gaps = [b - a for a, b in pairwise([0.0, *times])]
    assert times[-1] / len(times) == pytest.approx(0.1, rel=0.03)
    assert sum(gap > 0.1 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.02)


def test_seeds_differ() -> None:
    assert next(poisson(1.0, 1)) != next(poisson(1.0, 2))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        poisson(rate, 1)
