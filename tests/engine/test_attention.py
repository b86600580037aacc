"""Attention over pages against its oracle, and where its whole numbers could go wrong."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tiny_llama import EVEN_SPEC, Bench, Lane, model_of

from antiphon.engine import reference
from antiphon.engine.attention import attend, scratch_floats
from antiphon.engine.batch import Batch, Run
from antiphon.engine.kv_memory import KvDtype

SPEC = EVEN_SPEC
LAYER = 1


def bench_of(page_tokens: int, kv_dtype: KvDtype) -> Bench:
    return Bench(model_of(SPEC), page_tokens, pages=6 * 256 // page_tokens, kv_dtype=kv_dtype)


def filled(page_tokens: int, kv_dtype: KvDtype) -> Bench:
    bench = bench_of(page_tokens, kv_dtype)
    generator = torch.Generator().manual_seed(5)
    flat = bench.memory.flat
    flat.copy_(torch.randn(flat.shape, generator=generator))
    return bench


def queries_of(rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randn(rows, (SPEC.heads + 2 * SPEC.kv_heads) * SPEC.head_dim, generator=generator)


def attended(
    bench: Bench, batch: Batch, qkv: torch.Tensor, threads: int = 1, window: int = 0
) -> torch.Tensor:
    found = torch.full((len(qkv), SPEC.heads * SPEC.head_dim), float("nan"))
    for thread in range(threads):
        attend(
            qkv.numpy(),
            found.numpy(),
            bench.memory.elements,
            batch.tables[0],
            batch.blocks,
            bench.geometry,
            LAYER,
            window,
            torch.empty(scratch_floats(bench.geometry)).numpy(),
            (thread, threads),
        )
    return found


def batch_of(bench: Bench, spans: list[tuple[int, int]], lane: Lane | None = None) -> Batch:
    """(start, rows) of sequences of their own, or all of `lane`."""
    runs = [
        Run(
            tokens=[0] * count,
            start=start,
            table=(lane or bench.lane([0] * 256)).table,
            sampled=False,
        )
        for start, count in spans
    ]
    return Batch.of(runs, bench.memory.layout)


def rounded(rows: torch.Tensor, limit: int) -> torch.Tensor:
    """Each of the last axis' rows as whole numbers of at most `limit`, times their scale."""
    peak = rows.abs().amax(-1, keepdim=True).double()
    return ((rows * (limit / peak)).round() * (peak / limit)).float()


def oracle(bench: Bench, batch: Batch, qkv: torch.Tensor, window: int = 0) -> torch.Tensor:
    """In floats; over bfloat16 with queries, keys and values rounded as the kernel does."""
    queries = qkv[:, : SPEC.heads * SPEC.head_dim].view(len(qkv), SPEC.heads, SPEC.head_dim)
    if bench.memory.layout.dtype is KvDtype.BF16:
        plain = bench_of(bench.memory.layout.page_tokens, KvDtype.FP32)
        plain.memory.tensor.copy_(rounded(bench.memory.tensor.float(), 8191))
        bench, queries = plain, rounded(queries, 2047)
    return reference.attend(queries, batch, bench.memory, LAYER, window).flatten(1)


@pytest.mark.parametrize("kv_dtype", KvDtype)
@pytest.mark.parametrize("page_tokens", [1, 16, 64])
@pytest.mark.parametrize("threads", [1, 3])
def test_attention_matches_the_oracle(page_tokens: int, threads: int, kv_dtype: KvDtype) -> None:
    """Prefill, a later chunk and decodes in one batch, over pages in no order."""
    bench = filled(page_tokens, kv_dtype)
    batch = batch_of(bench, [(0, 1), (0, 130), (63, 1), (64, 1), (100, 17), (180, 1)])
    qkv = queries_of(len(batch.tokens))
    found = attended(bench, batch, qkv, threads)
    expected = oracle(bench, batch, qkv)
    most, on_average = (1e-5, 1e-6) if kv_dtype is KvDtype.FP32 else (1e-3, 5e-4)
    torch.testing.assert_close(found, expected, atol=most, rtol=most)
    assert (found - expected).norm() < on_average * expected.norm()


@pytest.mark.parametrize("kv_dtype", KvDtype)
@pytest.mark.parametrize("window", [1, 7, 64, 65, 130])
def test_a_window_hides_what_is_before_it(window: int, kv_dtype: KvDtype) -> None:
    """Against the oracle, in one chunk and in others: windows within a tile, and over several."""
    bench = filled(16, kv_dtype)
    lane = bench.lane([0] * 256)
    qkv = queries_of(250)
    batch = batch_of(bench, [(0, 250)], lane)
    found = attended(bench, batch, qkv, 2, window)
    expected = oracle(bench, batch, qkv, window)
    most = 1e-5 if kv_dtype is KvDtype.FP32 else 1e-3
    torch.testing.assert_close(found, expected, atol=most, rtol=most)
    for cuts in ([0, 1, 64, 65, 131, 250], [*range(0, 250, 7), 250], range(251)):
        spans = [(start, end - start) for start, end in pairwise(cuts)]
        assert torch.equal(attended(bench, batch_of(bench, spans, lane), qkv, 1, window), found)


@pytest.mark.parametrize("kv_dtype", KvDtype)
@pytest.mark.parametrize("part", [0, 1], ids=["key", "value"])
@pytest.mark.parametrize("position", [0, 63, 64, 90])
def test_a_flaw_outside_of_the_window_is_not_seen(
    position: int, part: int, kv_dtype: KvDtype
) -> None:
    """Not even from the same tile: pages behind a window may come to hold anything."""
    window = 20
    bench = filled(16, kv_dtype)
    lane = bench.lane([0] * 256)
    batch, qkv = batch_of(bench, [(0, 130)], lane), queries_of(130)
    before = attended(bench, batch, qkv, 1, window)
    entry, slot = divmod(position, 16)
    bench.memory.tensor[lane.table.pages[entry], LAYER, part, :, slot, 5] = torch.nan
    after = attended(bench, batch, qkv, 1, window)
    assert torch.equal(after[:position], before[:position])
    assert after[position : position + window].isnan().any(1).all()
    assert torch.equal(after[position + window :], before[position + window :])


def test_whole_numbers_are_close_to_floats() -> None:
    bench = filled(16, KvDtype.BF16)
    batch = batch_of(bench, [(0, 130), (200, 40)])
    qkv = queries_of(len(batch.tokens))
    queries = qkv[:, : SPEC.heads * SPEC.head_dim].view(len(qkv), SPEC.heads, SPEC.head_dim)
    exact = reference.attend(queries, batch, bench.memory, layer=LAYER).flatten(1)
    error = attended(bench, batch, qkv) - exact
    assert error.norm() < 1e-3 * exact.norm()


@pytest.mark.parametrize("kv_dtype", KvDtype)
def test_any_chunking_gives_the_same_bits(kv_dtype: KvDtype) -> None:
    bench = filled(16, kv_dtype)
    lane = bench.lane([0] * 256)
    qkv = queries_of(200)
    together = attended(bench, batch_of(bench, [(0, 200)], lane), qkv)
    for cuts in ([0, 1, 64, 65, 131, 200], [*range(0, 200, 7), 200], range(201)):
        spans = [(start, end - start) for start, end in pairwise(cuts)]
        assert torch.equal(attended(bench, batch_of(bench, spans, lane), qkv, 2), together)


@pytest.mark.parametrize("part", [0, 1], ids=["key", "value"])
@pytest.mark.parametrize("flaw", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("position", [0, 70, 127])
def test_a_flaw_reaches_who_sees_it_and_nobody_else(part: int, flaw: float, position: int) -> None:
    bench = filled(16, KvDtype.BF16)
    lane = bench.lane([0] * 256)
    batch, qkv = batch_of(bench, [(0, 130)], lane), queries_of(130)
    before = attended(bench, batch, qkv)
    entry, slot = divmod(position, 16)
    bench.memory.tensor[lane.table.pages[entry], LAYER, part, 0, slot, 5] = flaw
    after = attended(bench, batch, qkv)
    middle = SPEC.heads // SPEC.kv_heads * SPEC.head_dim  # the flawed head's queries, the others
    assert torch.equal(after[:position], before[:position])
    assert torch.equal(after[:, middle:], before[:, middle:])
    assert after[position:, :middle].isnan().all()


@pytest.mark.parametrize("flaw", [torch.nan, torch.inf])
def test_a_flawed_query_spoils_its_own_head_only(flaw: float) -> None:
    bench = filled(16, KvDtype.BF16)
    batch, qkv = batch_of(bench, [(0, 100)]), queries_of(100)
    before = attended(bench, batch, qkv)
    qkv[50, 7] = flaw
    after = attended(bench, batch, qkv)
    assert after[50, : SPEC.head_dim].isnan().all()
    after[50, : SPEC.head_dim] = before[50, : SPEC.head_dim]
    assert torch.equal(after, before)


@pytest.mark.parametrize("size", [1e-38, 1.0, 3e4])
def test_the_largest_sums_fit(size: float) -> None:
    """All keys alike: every weight is 1, and all products have the same sign."""
    bench = bench_of(16, KvDtype.BF16)
    bench.memory.flat.fill_(size)
    batch = batch_of(bench, [(0, 130)])
    qkv = torch.full((130, (SPEC.heads + 2 * SPEC.kv_heads) * SPEC.head_dim), size)
    expected = bench.memory.flat[0].float() if size > 1e-30 else torch.tensor(0.0)
    found = attended(bench, batch, qkv)
    torch.testing.assert_close(found, expected.expand(found.shape), rtol=1e-4, atol=1e-30)


def test_small_weights_are_not_lost_beside_a_sink() -> None:
    """One key takes half the attention, two hundred in later tiles share the rest."""
    bench = bench_of(16, KvDtype.BF16)
    bench.memory.flat.zero_()
    lane = bench.lane([0] * 256)
    keys, values = (bench.memory.tensor[lane.table.pages, LAYER, part] for part in (0, 1))
    keys[0, :, 0, 0] = np.log(200) * 8  # a query of ones in that column: e to the power of log 200
    values[:, :, :, 1] = 1
    values[0, :, 0, 1] = 0
    bench.memory.tensor[lane.table.pages, LAYER, 0] = keys
    bench.memory.tensor[lane.table.pages, LAYER, 1] = values
    qkv = torch.zeros(1, (SPEC.heads + 2 * SPEC.kv_heads) * SPEC.head_dim)
    qkv[:, :: SPEC.head_dim] = 1
    found = attended(bench, batch_of(bench, [(200, 1)], lane), qkv)
    assert found[0, 1].item() == pytest.approx(0.5, abs=0.01)
