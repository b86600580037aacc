"""A position's bits depend on its own tokens alone, on a torch device too: see `test_llama.py`.

With products "in one shape" the law needs no more of torch than that equal shapes are computed by
equal kernels; the processor's own shapes need its BLAS to keep the law of `test_projection.py`.
"""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from device_kit import DEVICES, NEEDS_CUDA, AloneOn, DeviceBench, made, model_on
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import EVEN_SPEC, random_tokens, same_in_any_steps, tensors_of

from antiphon.engine.batch import Batch
from antiphon.engine.device import DeviceLlama, Shapes
from antiphon.engine.kv_memory import KvDtype
from antiphon.testing.tiny_families import FAMILY_SPECS

CONTEXT = 160
FAMILIES = ("llama", "mistral, window", "qwen2, YaRN", "phi3", "gemma3", "dots1")
KINDS = [("fp32", "own"), ("fp32", "one shape"), ("bf16", "one shape"), ("bf16", "own")]
KINDS_OF = pytest.mark.parametrize(("dtype", "shapes"), KINDS)


@cache
def alone(device: str, family: str, dtype: str, shapes: str, kv: KvDtype, seed: int) -> AloneOn:
    return AloneOn(model_on(device, family, dtype, shapes), device, seed, kv, CONTEXT)


@DEVICES
@KINDS_OF
@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=4)
@given(st.data())
def test_bits_depend_on_neither_neighbours_nor_chunking_nor_page_size(
    family: str, dtype: str, shapes: str, device: str, data: st.DataObject
) -> None:
    kv = KvDtype.FP32 if dtype == "fp32" else KvDtype.BF16
    page_tokens = data.draw(st.sampled_from([1, 3, 16, 64]), "page_tokens")
    lengths = data.draw(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=4), "lengths")
    apart = data.draw(st.booleans(), "windows apart")
    model = model_on(device, family, dtype, shapes)
    pages = 4 * (CONTEXT // page_tokens + 1)
    bench = DeviceBench(model, device, page_tokens, pages, len(lengths), kv, apart=apart)
    ones = [alone(device, family, dtype, shapes, kv, n) for n in range(len(lengths))]
    same_in_any_steps(bench, ones, lengths, data, CONTEXT)


@DEVICES
@KINDS_OF
@pytest.mark.parametrize("family", ["llama", "phi3", "dots1"])
def test_token_after_token_it_is_what_it_is_in_one_pass(
    family: str, dtype: str, shapes: str, device: str
) -> None:
    kv = KvDtype.FP32 if dtype == "fp32" else KvDtype.BF16
    one = alone(device, family, dtype, shapes, kv, 0)
    bench = DeviceBench(model_on(device, family, dtype, shapes), device, 16, 10, 0, kv)
    lane = bench.lane(one.tokens)
    bench.step([(lane, CONTEXT - 30)])
    logits = torch.cat([bench.step([(lane, 1)]) for _ in range(30)])
    assert torch.equal(logits, one.logits[-30:])
    assert torch.equal(bench.kv(lane), one.kv)


@DEVICES
@KINDS_OF
def test_bits_are_the_same_in_a_batch_of_40(dtype: str, shapes: str, device: str) -> None:
    """Decoding beside 39 others that prefill and decode: several blocks, groups of units, tiles."""
    kv = KvDtype.FP32 if dtype == "fp32" else KvDtype.BF16
    one, spec = alone(device, "llama", dtype, shapes, kv, 0), FAMILY_SPECS["llama"]
    bench = DeviceBench(model_on(device, "llama", dtype, shapes), device, 16, 40 * 12, 0, kv)
    lane = bench.lane(one.tokens[:120])
    others = [bench.lane(random_tokens(spec, 150, seed)) for seed in range(100, 139)]
    bench.step([(lane, 100)])
    for step in range(20):
        beside = [(other, 9 if n % 7 == step % 7 else 1) for n, other in enumerate(others)]
        beside.insert(step, (lane, 1))
        assert torch.equal(bench.step(beside)[step], one.logits[lane.done - 1])
    assert torch.equal(bench.kv(lane), one.kv[: lane.done])


@pytest.mark.parametrize("threads", [2, 3])
@KINDS_OF
def test_bits_do_not_depend_on_the_number_of_threads(
    dtype: str, shapes: str, threads: int, torch_threads: Callable[[int], None]
) -> None:
    kv = KvDtype.FP32 if dtype == "fp32" else KvDtype.BF16
    one = alone("cpu", "llama", dtype, shapes, kv, 0)
    torch_threads(threads)
    bench = DeviceBench(model_on("cpu", "llama", dtype, shapes), "cpu", 16, 10, 0, kv)
    lane = bench.lane(one.tokens)
    for count in (CONTEXT - 11, 1, 10):
        assert torch.equal(bench.step([(lane, count)])[0], one.logits[lane.done - 1])


@DEVICES
@pytest.mark.parametrize("family", FAMILIES)
def test_what_nobody_wrote_is_never_read(family: str, device: str) -> None:
    """`DeviceBench` fills all pages with NaN, nobody's page too."""
    for dtype, shapes in KINDS:
        kv = KvDtype.FP32 if dtype == "fp32" else KvDtype.BF16
        model = model_on(device, family, dtype, shapes)
        for apart in (False, True):
            bench = DeviceBench(model, device, 64, 3, 0, kv, apart=apart)
            lane = bench.lane(random_tokens(FAMILY_SPECS[family], 129, 5))
            for count in (1, 62, 65, 1):
                assert torch.isfinite(bench.step([(lane, count)])).all()


@DEVICES
@KINDS_OF
def test_a_neighbour_that_is_no_number_changes_nothing(
    dtype: str, shapes: str, device: str
) -> None:
    kv = KvDtype.FP32 if dtype == "fp32" else KvDtype.BF16
    spec = FAMILY_SPECS["qwen2"]
    tensors = tensors_of(spec)
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.embed_tokens.weight"][99] = float("nan")
    own = model_on(device, "qwen2", dtype, shapes).shapes
    model = made(spec, device, dtype, own, tensors)
    good = [token % 90 for token in random_tokens(spec, 60, 1)]
    bench = DeviceBench(model, device, 16, 20, 0, kv)
    alone_lane, lane = bench.lane(good), bench.lane(good)
    bad = bench.lane([1, 99, 3])
    expected = bench.step([(alone_lane, 60)])[0]
    said = bench.step([(bad, 3), (lane, 60)])
    assert said[0].isnan().all()
    assert torch.equal(said[1], expected)


class Forgets(DeviceLlama):
    """Computes rows as they come: in no shape but the batch's own."""

    def forward(self, batch: Batch, memory: object) -> torch.Tensor:  # type: ignore[override]
        rows = 8 * -(-len(batch.tokens) // 8)
        self.shapes = Shapes(rows=rows, units=32, query_rows=8, tile=rows, exact=False)
        return super().forward(batch, memory)  # type: ignore[arg-type]


def test_control_tiles_that_follow_the_batch_change_bits() -> None:
    spec = EVEN_SPEC
    model = Forgets(spec, tensors_of(spec), device=torch.device("cpu"), dtype=torch.float32)
    tokens = random_tokens(spec, 120, 3)
    said = []
    for chunks in ((120,), (1,) * 120):
        bench = DeviceBench(model, "cpu", 16, 10)
        lane = bench.lane(tokens)
        said.append([bench.step([(lane, count)]) for count in chunks][-1])
    assert not torch.equal(*said)
    torch.testing.assert_close(*said, atol=1e-4, rtol=0)


@NEEDS_CUDA
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_on_cuda_the_shapes_that_serve_keep_the_law(dtype: str) -> None:
    """64 rows, 16 units, tiles of 512: what `LIKE_CUDA` is a small copy of."""
    spec = FAMILY_SPECS["llama"]
    one = alone("cuda:0", "llama", dtype, "own", KvDtype.BF16, 0)
    bench = DeviceBench(model_on("cuda:0", "llama", dtype), "cuda:0", 16, 800, 0, KvDtype.BF16)
    lane = bench.lane(one.tokens)
    others = [bench.lane(random_tokens(spec, 150, seed)) for seed in range(70)]
    for count in (CONTEXT - 11, 1, 10):
        logits = bench.step([*((other, 1 + count % 5) for other in others), (lane, count)])
        assert torch.equal(logits[-1], one.logits[lane.done - 1])
