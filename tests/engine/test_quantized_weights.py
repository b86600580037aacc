"""Quantised weights are the same by every way they can come, and the disk never spoils them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_llama import Bench, model_from, tensors_of

from antiphon.checkpoint import Checkpoint, StorageType, open_checkpoint
from antiphon.engine import quantized_weights
from antiphon.engine.int8 import block_bytes, from_block, pack, to_block
from antiphon.engine.llama_weights import LlamaWeights
from antiphon.engine.model import load_llama
from antiphon.engine.quantized_weights import QuantizedWeights
from antiphon.engine.weights import load_quantized
from antiphon.errors import ModelFileError
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf

SPECS = {
    "plain": TINY_SPEC,
    "tied": replace(TINY_SPEC, tied_embeddings=True),
    "biases": replace(TINY_SPEC, qkv_bias=True, out_bias=True, mlp_bias=True),
}


def content(weights: QuantizedWeights) -> list[bytes]:
    """Everything, in a fixed order."""
    found = [weights.embedding.numpy(), weights.norm.numpy()]
    linears = [weights.head]
    for layer in weights.layers:
        found += [layer.attention_norm.numpy(), layer.mlp_norm.numpy()]
        linears += [layer.qkv, layer.attention_out, layer.gate_up, layer.down]
    for linear in linears:
        packed = linear.weight
        found += [packed.panels, packed.channel_scale, np.array(packed.activation_limit)]
        if linear.bias is not None:
            found.append(linear.bias.numpy())
    return [array.tobytes() for array in found]


@pytest.fixture(params=SPECS)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    spec = SPECS[request.param]
    tensors = random_tensors(spec, seed=3)
    return open_checkpoint(write_gguf(tmp_path / "a.gguf", spec, tensors, storage=StorageType.F16))


def cached_file(tmp_path: Path) -> Path:
    [path] = (tmp_path / "cache/weights").iterdir()
    return path


def test_cached_and_not_cached_are_equal(checkpoint: Checkpoint, tmp_path: Path) -> None:
    expected = content(load_quantized(checkpoint, cache_dir=None))
    for _ in range(2):
        assert content(load_quantized(checkpoint, cache_dir=tmp_path / "cache")) == expected
    assert "-int8-" in cached_file(tmp_path).name


def test_the_second_start_converts_nothing(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_quantized(checkpoint, cache_dir=tmp_path / "cache")

    def refuse(*_: object) -> None:
        raise AssertionError("packed again")

    monkeypatch.setattr(quantized_weights, "pack", refuse)
    load_quantized(checkpoint, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("place", [0, 100, 0.5, -1])
def test_a_damaged_file_is_made_anew(checkpoint: Checkpoint, tmp_path: Path, place: float) -> None:
    expected = content(load_quantized(checkpoint, cache_dir=tmp_path / "cache"))
    path = cached_file(tmp_path)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    at = int(place * len(whole)) if isinstance(place, float) else place
    damaged[at] ^= 1
    path.unlink()
    path.write_bytes(damaged)
    assert content(load_quantized(checkpoint, cache_dir=tmp_path / "cache")) == expected
    assert path.read_bytes() == whole


def test_another_packing_is_another_file(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_quantized(checkpoint, cache_dir=tmp_path / "cache")
    monkeypatch.setattr("antiphon.engine.weights.QUANTIZED_REVISION", "int8-other")
    load_quantized(checkpoint, cache_dir=tmp_path / "cache")
    assert len(list((tmp_path / "cache/weights").iterdir())) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    tensors = random_tensors(TINY_SPEC, seed=3)
    tensors["model.layers.1.mlp.down_proj.weight"][5, 7] = value
    path = write_gguf(tmp_path / "a.gguf", TINY_SPEC, tensors, storage=StorageType.F16)
    with pytest.raises(ModelFileError, match=r"blk.1.ffn_down.*NaN or infinite"):
        load_llama(open_checkpoint(path), dtype="int8", cache_dir=tmp_path / "cache")
    assert not list(tmp_path.glob("cache/weights/*"))


def test_embeddings_and_norms_stay_exact_and_the_mapping_is_emptied() -> None:
    spec = SPECS["tied"]
    quantized = QuantizedWeights.take(spec, tensors := tensors_of(spec))
    exact = LlamaWeights.take(spec, tensors_of(spec))
    assert not tensors
    assert torch.equal(quantized.embedding, exact.embedding)
    assert torch.equal(quantized.norm, exact.norm)
    assert torch.equal(quantized.layers[1].mlp_norm, exact.layers[1].mlp_norm)


@pytest.mark.parametrize("shape", [(1, 1), (16, 8), (50, 77), (271, 96)])
def test_a_block_holds_the_packed_weight(shape: tuple[int, int]) -> None:
    packed = pack(np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    block = to_block(packed)
    assert len(block) == block_bytes(*shape)
    assert len(block) % 64 == 0
    found = from_block(block, *shape)
    assert found.panels.tobytes() == packed.panels.tobytes()
    assert found.panels.shape == packed.panels.shape
    assert found.channel_scale.tobytes() == packed.channel_scale.tobytes()
    assert found.activation_limit == packed.activation_limit
    assert np.shares_memory(found.panels, block)


def test_a_channel_that_overflows_on_one_token_ends_that_row_alone() -> None:
    """Finite weights, an infinity on the way: the row is marked where it would be rounded."""
    spec = SPECS["plain"]
    tensors = tensors_of(spec)
    embedding = tensors["model.embed_tokens.weight"]
    embedding[:, 0], embedding[99, 0] = 0.0, 50.0
    for part in ("gate", "up"):
        weight = tensors[f"model.layers.0.mlp.{part}_proj.weight"]
        weight[3, 0] = 1e30
    tensors["model.layers.0.self_attn.o_proj.weight"][0] = 0.0
    bench = Bench(model_from(spec, tensors, "int8"), page_tokens=16, pages=8)
    good, bad = bench.lane([1, 2, 3, 4]), bench.lane([5, 99, 6])
    logits = bench.step([(good, 4), (bad, 2)])
    assert torch.isfinite(logits[0]).all()
    assert not torch.isfinite(logits[1]).any()
