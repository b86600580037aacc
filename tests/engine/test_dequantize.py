"""Dequantised values are, bit for bit, those of the `gguf` library."""

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import BLOCK_LAYOUT, StorageType
from antiphon.engine.dequantize import dequantize
from antiphon.testing.ggml_quants import quantize, rounded


def reference(raw: np.ndarray, storage: StorageType, shape: tuple[int, ...]) -> np.ndarray:
    rows = raw.reshape(*shape[:-1], -1)
    with np.errstate(over="ignore", invalid="ignore"):
        return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[storage]).reshape(shape)


def assert_same_bits(found: torch.Tensor, expected: np.ndarray) -> None:
    """Equal bit for bit, but any NaN equals any NaN (their payload means nothing)."""
    bits, wanted = found.numpy().view(np.uint32), expected.astype(np.float32).view(np.uint32)
    both_nan = np.isnan(found.numpy()) & np.isnan(expected)
    assert ((bits == wanted) | both_nan).all()


@pytest.mark.parametrize("storage", StorageType)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bytes(storage: StorageType, data: st.DataObject) -> None:
    elements, size = BLOCK_LAYOUT[storage]
    rows, blocks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    count = rows * blocks * size
    raw = np.frombuffer(data.draw(st.binary(min_size=count, max_size=count)), np.uint8).copy()
    shape = (rows, blocks * elements)
    found = dequantize(torch.from_numpy(raw), storage, shape)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert_same_bits(found, reference(raw, storage, shape))


@pytest.mark.parametrize("storage", StorageType)
def test_random_weights(storage: StorageType) -> None:
    chance = np.random.default_rng(5)
    values = chance.normal(0, 0.5, (64, 256)).astype(np.float32)
    raw = quantize(values, storage)
    raw = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
    found = dequantize(torch.from_numpy(raw), storage, values.shape)
    assert_same_bits(found, reference(raw, storage, values.shape))
    assert np.abs(found.numpy() - values).max() < 0.3


@pytest.mark.parametrize(("storage", "levels"), [("Q4_K", 15), ("Q5_K", 31), ("Q6_K", 62)])
def test_k_types_keep_values_to_a_step(storage: str, levels: int) -> None:
    """Each element is back where it was, to a bit more than half of its part's step: were two
    elements, scales or bits exchanged in packing or unpacking, it would not be."""
    chance = np.random.default_rng(7)
    spread = np.repeat(np.exp(chance.normal(0, 0.4, (16, 32))), 16, axis=1)
    values = (chance.normal(0, 1, (16, 512)) * spread).astype(np.float32)
    part = 16 if storage == "Q6_K" else 32
    parts = values.reshape(16, -1, part)
    span = parts.max(2).clip(0) - parts.min(2).clip(max=0)
    if storage == "Q6_K":
        span = 2 * np.abs(parts).max(2)
    error = np.abs(rounded(values, StorageType(storage)) - values).reshape(parts.shape).max(2)
    coarse = np.abs(values).max() / 40  # the parts' scales and minima are in 6 or 8 bits
    assert (error <= 0.5 * span / levels + coarse).all()
    assert error.mean() < 0.75 * (span / levels).mean()


@pytest.mark.parametrize("storage", StorageType)
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_misaligned_bytes(storage: StorageType, offset: int) -> None:
    elements, size = BLOCK_LAYOUT[storage]
    raw = np.random.default_rng(6).integers(0, 60, 8 * size, dtype=np.uint8)
    shifted = torch.zeros(offset + len(raw), dtype=torch.uint8)
    shifted[offset:] = torch.from_numpy(raw)
    found = dequantize(torch.from_numpy(shifted.numpy()[offset:]), storage, (8, elements))
    assert_same_bits(found, reference(raw, storage, (8, elements)))


@pytest.mark.parametrize("storage", StorageType)
def test_source_is_not_changed(storage: StorageType) -> None:
    elements, size = BLOCK_LAYOUT[storage]
    raw = torch.arange(3 * size, dtype=torch.uint8)
    dequantize(raw, storage, (3, elements))
    assert torch.equal(raw, torch.arange(3 * size, dtype=torch.uint8))
