"""Clusters of equal size: laws over any rows, and that they find what is there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.moefy import balanced_clusters


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 9),
    size=st.integers(1, 12),
    width=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    levels=st.sampled_from([1, 2, 1000]),
)
def test_equal_sizes_again_and_again(
    count: int, size: int, width: int, seed: int, levels: int
) -> None:
    """Also of rows that are equal (few levels), where nearness decides nothing."""
    chance = np.random.default_rng(seed)
    rows = chance.integers(0, levels, (count * size, width)).astype(np.float32)
    labels = balanced_clusters(rows, count)
    assert np.bincount(labels, minlength=count).tolist() == [size] * count
    assert np.array_equal(labels, balanced_clusters(rows.copy(), count))


@pytest.mark.parametrize("seed", range(5))
def test_clusters_that_are_there_are_found(seed: int) -> None:
    chance = np.random.default_rng(seed)
    centres = 10 * np.eye(6, 8, dtype=np.float32)
    belongs = chance.permutation(np.repeat(np.arange(6), 20))
    rows = centres[belongs] + chance.normal(0, 1, (120, 8)).astype(np.float32)
    labels = balanced_clusters(rows, 6)
    assert len(set(zip(belongs.tolist(), labels.tolist(), strict=True))) == 6


def test_rows_that_can_not_be_shared_out_are_refused() -> None:
    with pytest.raises(ValueError, match="7 rows can't form 2 clusters"):
        balanced_clusters(np.zeros((7, 3), np.float32), 2)
