"""What profiles are made of: windows of a text, samples that can be fitted to, turned keys."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.checkpoint import open_checkpoint
from antiphon.engine.kv_gradients import KvSample
from antiphon.errors import UsageError
from antiphon.live.kv_profiler import Fit, SampleSizes, fitted, turned
from antiphon.live.text_windows import spread_windows
from antiphon.store.codec import rotation
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder


def sample_of(seed: int) -> KvSample:
    chance = np.random.default_rng(seed)
    sides = (TINY_SPEC.layers, 2, TINY_SPEC.kv_heads, 40, TINY_SPEC.head_dim)
    values, gradients = (chance.normal(size=sides).astype(np.float32) for _ in range(2))
    return KvSample(values=values, gradients=gradients)


@pytest.mark.parametrize(("odd", "told"), [(np.nan, "not finite"), (1e30, "no profile fits")])
def test_kv_that_nothing_can_be_fitted_to_is_named(tmp_path: Path, odd: float, told: str) -> None:
    write_hf_folder(tmp_path, TINY_SPEC, random_tensors(TINY_SPEC, 1))
    samples = [sample_of(seed) for seed in range(4)]
    samples[3].values[1, 0, 0, 5, 3] = odd
    with pytest.raises(UsageError, match=told):
        fitted(open_checkpoint(tmp_path), "tiny", samples, 4, SampleSizes(), Fit())


def test_keys_turn_as_positions_say_and_values_stay() -> None:
    sample, half = sample_of(1), TINY_SPEC.head_dim // 2
    before = sample.values.copy()
    angles = rotation(np.linspace(0.1, 1, half).astype(np.float32), 0, 40)
    found = turned(sample, np.linspace(0.1, 1, half).astype(np.float32))
    for old, new in ((sample.values, found.values), (sample.gradients, found.gradients)):
        pairs = old[:, 0, ..., :half] + 1j * old[:, 0, ..., half:]
        pairs = pairs * (angles.cosines + 1j * angles.sines)
        assert np.allclose(new[:, 0], np.concatenate([pairs.real, pairs.imag], -1), atol=1e-5)
        assert (new[:, 1] == old[:, 1]).all()
    assert (sample.values == before).all()


@given(st.integers(0, 200), st.integers(1, 50), st.integers(1, 20))
def test_windows_are_spread_over_a_text_and_never_meet(length: int, size: int, most: int) -> None:
    found = spread_windows(range(length), size, most)
    assert len(found) == min(most, length // size)
    assert all(len(one) == size for one in found)
    assert all(one[-1] < next_one[0] for one, next_one in pairwise(found))
    if found:
        assert found[0][0] == 0
    if len(found) > 1:
        assert found[-1][-1] == length - 1
