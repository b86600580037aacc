"""The bitwise laws for every family, through what its files say: see `test_llama.py`."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import DTYPES, Alone, Bench, model_of, random_tokens, same_in_any_steps

from antiphon.engine import quantized_llama
from antiphon.engine.kv_memory import KvDtype
from antiphon.engine.model import Model
from antiphon.testing.tiny_families import FAMILY_SPECS

FAMILIES = ("mistral, window", "qwen2, YaRN", "qwen3", "phi3", "gemma3", "qwen3_moe", "dots1")
EACH = pytest.mark.parametrize("family", FAMILIES)
BOTH = pytest.mark.parametrize("dtype", DTYPES)
CONTEXT = 160
"""Past every window and the context that RoPE was stretched from."""


@cache
def model(family: str, dtype: str) -> Model:
    return model_of(FAMILY_SPECS[family], dtype=dtype)


@cache
def alone(family: str, dtype: str, seed: int, kv_dtype: KvDtype = KvDtype.FP32) -> Alone:
    return Alone(model(family, dtype), seed, kv_dtype, CONTEXT)


@EACH
@BOTH
@pytest.mark.parametrize("kv_dtype", KvDtype)
@settings(deadline=None, max_examples=6)
@given(st.data())
def test_bits_depend_on_neither_neighbours_nor_chunking_nor_page_size(
    family: str, dtype: str, kv_dtype: KvDtype, data: st.DataObject
) -> None:
    page_tokens = data.draw(st.sampled_from([1, 3, 16, 64]), "page_tokens")
    lengths = data.draw(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=3), "lengths")
    bench = Bench(
        model(family, dtype), page_tokens, 3 * (CONTEXT // page_tokens + 1), len(lengths), kv_dtype
    )
    ones = [alone(family, dtype, number, kv_dtype) for number in range(len(lengths))]
    same_in_any_steps(bench, ones, lengths, data, CONTEXT)


@EACH
@BOTH
def test_bits_are_the_same_in_a_batch_and_on_any_number_of_threads(
    family: str, dtype: str, monkeypatch: pytest.MonkeyPatch, torch_threads: Callable[[int], None]
) -> None:
    """Few rows and many beside others: threads share them in two ways."""
    monkeypatch.setattr(quantized_llama, "_WORTH_SHARING", 0)
    one, spec = alone(family, dtype, 0), FAMILY_SPECS[family]
    for threads in (1, 2, 3):
        torch_threads(threads)
        bench = Bench(model(family, dtype), page_tokens=16, pages=80)
        lane = bench.lane(one.tokens)
        others = [bench.lane(random_tokens(spec, 100, seed)) for seed in range(20, 27)]
        for count in (CONTEXT - 11, 1, 10):
            beside = [(other, 1 + count % 20) for other in others]
            logits = bench.step([*beside, (lane, count)])
            assert torch.equal(logits[-1], one.logits[lane.done - 1])
        assert torch.equal(bench.kv(lane), one.kv)


@EACH
def test_what_nobody_wrote_is_never_read(family: str) -> None:
    """`Bench` fills the memory with NaN: a read past the written slots would show in the logits."""
    for dtype in DTYPES:
        for kv_dtype in KvDtype:
            bench = Bench(model(family, dtype), page_tokens=64, pages=3, kv_dtype=kv_dtype)
            lane = bench.lane(alone(family, dtype, 0).tokens[:129])
            for count in (1, 62, 65, 1):
                assert torch.isfinite(bench.step([(lane, count)])).all()
