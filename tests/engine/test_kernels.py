"""Lanes and row kernels against plain torch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numba import njit
from tiny_llama import EVEN_SPEC, ODD_SPEC, Bench, model_of

from antiphon.engine import lanes as simd
from antiphon.engine import reference
from antiphon.engine.batch import Batch, Run
from antiphon.engine.rope import rotation_table
from antiphon.engine.row_kernels import (
    gated_gelu,
    gated_silu,
    normalise_heads,
    rms_norm,
    rotate_and_store,
)


@njit
def lane_results(values, sums, exponentials):
    for at in range(0, values.size, simd.LANES):
        lanes = simd.load(values, at)
        sums[at // simd.LANES] = simd.total(lanes)
        simd.store(exponentials, at, simd.exp(lanes))


@njit
def first_lanes(values, count, target):
    fill = simd.splat(np.float32(-1.0))
    simd.store(target, 0, simd.keep_first(simd.load(values, 0), count, fill))


def randoms(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_exponential_is_within_two_ulp_over_its_range() -> None:
    values = np.linspace(-87, 88, 16 * 5000, dtype=np.float32)
    sums, found = np.empty(5000, np.float32), np.empty_like(values)
    lane_results(values, sums, found)
    expected = np.exp(values.astype(np.float64))
    assert np.abs(found / expected - 1).max() < 2 * 2.0**-23


def test_exponential_clamps_and_keeps_nan() -> None:
    values = np.full(16, -1e30, np.float32)
    values[:3] = np.nan, np.inf, -np.inf
    found = np.empty_like(values)
    lane_results(values, np.empty(1, np.float32), found)
    assert np.isnan(found[0])
    assert np.isfinite(found[1:]).all()
    assert (found[2:] < 1e-37).all()


def test_sums_of_lanes() -> None:
    values = randoms(256).numpy()
    folded = np.empty(16, np.float32)
    lane_results(values, folded, np.empty_like(values))
    expected = values.reshape(16, 16).astype(np.float64).sum(1)
    np.testing.assert_allclose(folded, expected, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 40])
def test_keeping_the_first_lanes(count: int) -> None:
    values, found = randoms(16).numpy(), np.empty(16, np.float32)
    first_lanes(values, count, found)
    np.testing.assert_array_equal(found[:count], values[:count])
    assert (found[count:] == -1).all()


@njit
def copy_lanes(source, target):
    for at in range(0, source.size, simd.LANES):
        simd.store(target, at, simd.load(source, at))


def test_bf16_rounds_to_nearest_even_like_torch() -> None:
    """Every upper half with the lower halves around a tie; a NaN stays one, whatever its bits."""
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = ((np.arange(2**16, dtype=np.uint32)[:, None] << 16) | lower).reshape(-1)
    floats = torch.from_numpy(bits.view(np.float32))
    halves = np.empty(bits.size, np.uint16)
    copy_lanes(floats.numpy(), halves)
    expected, found = floats.bfloat16(), torch.from_numpy(halves).view(torch.bfloat16)
    real = ~floats.isnan()
    assert torch.equal(found[real].view(torch.int16), expected[real].view(torch.int16))
    assert found[~real].isnan().all()
    widened = np.empty(bits.size, np.float32)
    copy_lanes(halves, widened)
    assert torch.equal(torch.from_numpy(widened)[real], expected.float()[real])


def test_norm_matches_torch() -> None:
    rows, gain = randoms(5, 96), randoms(96)
    found = torch.empty_like(rows)
    rms_norm(rows.numpy(), gain.numpy(), np.float32(1e-5), 96, found.numpy())
    torch.testing.assert_close(found, reference.rms_norm(rows, gain, 1e-5))


def test_norm_takes_the_mean_over_the_true_width() -> None:
    rows, gain = randoms(5, 96), randoms(96)
    rows[:, 90:] = 0
    found = torch.empty_like(rows)
    rms_norm(rows.numpy(), gain.numpy(), np.float32(1e-5), 90, found.numpy())
    expected = reference.rms_norm(rows[:, :90], gain[:90], 1e-5)
    torch.testing.assert_close(found[:, :90], expected)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(gated_silu, reference.gated_silu), (gated_gelu, reference.gated_gelu)],
    ids=["silu", "gelu"],
)
def test_gated_activations_match_torch_at_any_size(
    kernel: Callable[..., None], expected: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    gate_up = randoms(7, 96) * torch.tensor([1.0, 10, 100, 1e-3, 1e4, 0, -50])[:, None]
    found = torch.empty(7, 48)
    kernel(gate_up.numpy(), found.numpy())
    torch.testing.assert_close(found, expected(gate_up), atol=2e-6, rtol=2e-6)


def test_heads_are_normalised_each_by_itself_and_values_are_left() -> None:
    bench = Bench(model_of(ODD_SPEC), 16, pages=1)
    heads, width = ODD_SPEC.heads + 2 * ODD_SPEC.kv_heads, bench.geometry.head_width
    own, turned = ODD_SPEC.head_dim, ODD_SPEC.heads + ODD_SPEC.kv_heads
    rows, gains = torch.zeros(5, heads, width), torch.zeros(2, width)
    rows[..., :own], gains[:, :own] = randoms(5, heads, own), randoms(2, own)
    found = rows.clone()
    normalise_heads(found.view(5, -1).numpy(), gains.numpy(), np.float32(1e-6), bench.geometry)
    gain = gains[torch.arange(turned).ge(ODD_SPEC.heads).long(), :own]
    expected = reference.rms_norm(rows[:, :turned, :own], gain, 1e-6)
    torch.testing.assert_close(found[:, :turned, :own], expected)
    assert torch.equal(found[:, turned:], rows[:, turned:])
    assert not found[..., own:].any()


@pytest.mark.parametrize("page_tokens", [1, 5, 16])
def test_rotation_matches_torch_and_keys_and_values_reach_their_slots(page_tokens: int) -> None:
    bench = Bench(model_of(EVEN_SPEC), page_tokens, pages=200)
    spec, start, count = EVEN_SPEC, 7, 40
    table = bench.lane([0] * 64).table
    run = Run(tokens=[0] * count, start=start, table=table, sampled=False)
    batch = Batch.of([run], bench.memory.layout)
    cosines, sines = rotation_table(spec, 64)
    qkv = randoms(count, (spec.heads + 2 * spec.kv_heads) * spec.head_dim)
    before = qkv.clone().view(count, -1, spec.head_dim)
    rotate_and_store(
        qkv.numpy(),
        batch.positions,
        batch.places[:, 0].copy(),
        cosines.numpy(),
        sines.numpy(),
        bench.memory.elements,
        bench.geometry,
        1,
    )
    span = slice(start, start + count)
    turned = reference.rotate(before[:, : spec.heads + spec.kv_heads], cosines[span], sines[span])
    found = qkv.view(count, -1, spec.head_dim)
    torch.testing.assert_close(found[:, : spec.heads + spec.kv_heads], turned)
    for row in range(count):
        entry, slot = divmod(start + row, page_tokens)
        page = bench.memory.tensor[table.pages[entry], 1, :, :, slot]
        assert torch.equal(page[0], found[row, spec.heads : spec.heads + spec.kv_heads])
        assert torch.equal(page[1], before[row, spec.heads + spec.kv_heads :])
    written = torch.isfinite(bench.memory.flat).sum().item()
    assert written == count * 2 * spec.kv_heads * spec.head_dim
