"""The forward pass against transformers, and the law that a row's bits depend on nothing else."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import (
    DTYPES,
    EVEN_SPEC,
    ODD_SPEC,
    Alone,
    Bench,
    model_of,
    oracle_of,
    random_tokens,
    tensors_of,
)

from antiphon.checkpoint import LinearScaling, Llama3Scaling, ModelSpec
from antiphon.engine import quantized_llama
from antiphon.engine.kv_memory import KvDtype
from antiphon.engine.llama import LlamaModel

LLAMA3 = Llama3Scaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_len=64
)
SPECS = {
    "odd": ODD_SPEC,
    "even": EVEN_SPEC,
    "tied": replace(ODD_SPEC, tied_embeddings=True),
    "untied": replace(EVEN_SPEC, tied_embeddings=False),
    "multi-head": replace(ODD_SPEC, kv_heads=6),
    "multi-query": replace(EVEN_SPEC, kv_heads=1),
    "wide heads": replace(EVEN_SPEC, heads=2, head_dim=80),
    "biases": replace(ODD_SPEC, qkv_bias=True, out_bias=True, mlp_bias=True),
    "llama3 rope": replace(ODD_SPEC, rope_scaling=LLAMA3),
    "linear rope": replace(EVEN_SPEC, rope_scaling=LinearScaling(factor=4.0)),
    "theta": replace(EVEN_SPEC, rope_theta=500000.0),
}
CONTEXT = ODD_SPEC.context_len


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_logits_match_transformers_at_every_position(spec: ModelSpec) -> None:
    tensors = tensors_of(spec)
    oracle = oracle_of(spec, tensors)
    bench = Bench(LlamaModel(spec, dict(tensors)), page_tokens=16, pages=2 * CONTEXT // 16)
    tokens = random_tokens(spec, CONTEXT, seed=3)
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0]
    lane = bench.lane(tokens)
    first = bench.step([(lane, 100)])
    rest = torch.cat([bench.step([(lane, 1)]) for _ in range(CONTEXT - 100)])
    ours = torch.cat([first, rest])
    assert expected.std() > 0.1
    torch.testing.assert_close(ours, expected[99:], atol=1e-4, rtol=0)


def test_the_mapping_is_emptied_so_that_fused_copies_do_not_double_the_memory() -> None:
    tensors = tensors_of(ODD_SPEC)
    LlamaModel(ODD_SPEC, tensors)
    assert not tensors


MODELS = {
    (spec, dtype): model_of(spec, dtype=dtype) for spec in (ODD_SPEC, EVEN_SPEC) for dtype in DTYPES
}
BOTH = pytest.mark.parametrize("dtype", DTYPES)
KV_DTYPES = pytest.mark.parametrize("kv_dtype", KvDtype)


@cache
def alone(spec: ModelSpec, dtype: str, seed: int, kv_dtype: KvDtype = KvDtype.FP32) -> Alone:
    return Alone(MODELS[spec, dtype], seed, kv_dtype, CONTEXT)


@BOTH
@KV_DTYPES
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_bits_depend_on_neither_neighbours_nor_chunking_nor_page_size(
    dtype: str, kv_dtype: KvDtype, data: st.DataObject
) -> None:
    spec = data.draw(st.sampled_from([ODD_SPEC, EVEN_SPEC]), "spec")
    page_tokens = data.draw(st.sampled_from([1, 3, 16, 64]), "page_tokens")
    lengths = data.draw(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=4), "lengths")
    model = MODELS[spec, dtype]
    bench = Bench(model, page_tokens, 4 * (CONTEXT // page_tokens + 1), len(lengths), kv_dtype)
    ones = [alone(spec, dtype, number, kv_dtype) for number in range(len(lengths))]
    lanes = [bench.lane(one.tokens[:length]) for one, length in zip(ones, lengths, strict=True)]
    sizes = st.one_of(st.just(1), st.integers(1, 20), st.integers(1, CONTEXT))
    while any(lane.done < len(lane.tokens) for lane in lanes):
        ready = [n for n, lane in enumerate(lanes) if lane.done < len(lane.tokens)]
        chosen = data.draw(st.lists(st.sampled_from(ready), min_size=1, unique=True), "step")
        logits = bench.step([(lanes[n], data.draw(sizes, "chunk")) for n in chosen])
        for row, n in zip(logits, chosen, strict=True):
            assert torch.equal(row, ones[n].logits[lanes[n].done - 1])
        if len(ready) == 1 and lanes[ready[0]].done < len(lanes[ready[0]].tokens) - 40:
            # Bound the example: what is left goes in one chunk.
            logits = bench.step([(lanes[ready[0]], CONTEXT)])
            assert torch.equal(logits[0], ones[ready[0]].logits[lanes[ready[0]].done - 1])
    for lane, one in zip(lanes, ones, strict=True):
        assert torch.equal(bench.kv(lane), one.kv[: lane.done])


@BOTH
@pytest.mark.parametrize("spec", [ODD_SPEC, EVEN_SPEC], ids=["odd", "even"])
def test_bits_are_the_same_in_a_batch_of_32(spec: ModelSpec, dtype: str) -> None:
    """Decoding beside 31 others that prefill and decode, each with tokens of its own."""
    one = alone(spec, dtype, 0)
    bench = Bench(MODELS[spec, dtype], page_tokens=16, pages=32 * 16)
    lane = bench.lane(one.tokens[:120])
    others = [bench.lane(random_tokens(spec, 250, seed)) for seed in range(100, 131)]
    bench.step([(lane, 100)])
    for step in range(20):
        beside = [
            (other, 9 if number % 7 == step % 7 else 1) for number, other in enumerate(others)
        ]
        beside.insert(step, (lane, 1))
        logits = bench.step(beside)
        assert torch.equal(logits[step], one.logits[lane.done - 1])
    assert torch.equal(bench.kv(lane), one.kv[: lane.done])


@BOTH
@pytest.mark.parametrize("spec", [ODD_SPEC, EVEN_SPEC], ids=["odd", "even"])
def test_bits_do_not_depend_on_the_number_of_threads(
    spec: ModelSpec,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
    torch_threads: Callable[[int], None],
) -> None:
    """Few rows and many: threads share them in two ways."""
    monkeypatch.setattr(quantized_llama, "_WORTH_SHARING", 0)
    one = alone(spec, dtype, 0)
    for threads in (1, 2, 3):
        torch_threads(threads)
        bench = Bench(MODELS[spec, dtype], page_tokens=16, pages=CONTEXT // 16)
        lane = bench.lane(one.tokens)
        for count in (CONTEXT - 11, 1, 10):
            logits = bench.step([(lane, count)])
            assert torch.equal(logits[0], one.logits[lane.done - 1])
        assert torch.equal(bench.kv(lane), one.kv)


@pytest.mark.parametrize("threads", [2, 3])
def test_a_step_of_one_row_too_few_to_go_apart_ends(
    threads: int, monkeypatch: pytest.MonkeyPatch, torch_threads: Callable[[int], None]
) -> None:
    """Shares differ by a row: the largest was enough for a way of its own, the smallest was not,
    and the threads waited for each other for ever."""
    monkeypatch.setattr(quantized_llama, "_WORTH_SHARING", 0)
    one = alone(EVEN_SPEC, "int8", 0)
    torch_threads(threads)
    bench = Bench(MODELS[EVEN_SPEC, "int8"], page_tokens=16, pages=CONTEXT // 16)
    lane = bench.lane(one.tokens)
    logits = bench.step([(lane, 32 * threads - 1)])
    assert torch.equal(logits[0], one.logits[lane.done - 1])


@BOTH
@KV_DTYPES
def test_what_nobody_wrote_is_never_read(dtype: str, kv_dtype: KvDtype) -> None:
    """`Bench` fills the memory with NaN: a read past the written slots would show in the logits."""
    bench = Bench(MODELS[EVEN_SPEC, dtype], page_tokens=64, pages=2, kv_dtype=kv_dtype)
    lane = bench.lane(alone(EVEN_SPEC, dtype, 0).tokens[:65])
    for count in (1, 30, 33, 1):
        assert torch.isfinite(bench.step([(lane, count)])).all()


@BOTH
@pytest.mark.parametrize("spec", [ODD_SPEC, EVEN_SPEC], ids=["odd", "even"])
def test_bf16_memory_changes_little_but_something(spec: ModelSpec, dtype: str) -> None:
    exact, rounded = (alone(spec, dtype, 0, kv_dtype) for kv_dtype in KvDtype)
    assert not torch.equal(exact.logits, rounded.logits)
    assert (exact.logits - rounded.logits).abs().mean() < 0.01 * exact.logits.std()
    # The first layer's keys and values come from the same numbers.
    assert torch.equal(exact.kv[:, 0].bfloat16(), rounded.kv[:, 0])
