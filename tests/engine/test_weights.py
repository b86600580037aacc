"""Loaded weights are those that were written, by every way they can come."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import (
    Checkpoint,
    ModelSpec,
    StorageType,
    expected_shapes,
    open_checkpoint,
    resolve,
)
from antiphon.engine.model import load_llama
from antiphon.engine.weights import deinterleave, load_weights
from antiphon.errors import ModelFileError, UsageError
from antiphon.testing.family_metadata import interleave
from antiphon.testing.ggml_quants import rounded
from antiphon.testing.tiny_models import (
    TINY_SPEC,
    quantised,
    random_tensors,
    write_gguf,
    write_hf_folder,
)

Arrays = dict[str, np.ndarray]
Smollm2 = tuple[Checkpoint, dict[str, torch.Tensor], dict[str, gguf.ReaderTensor]]


def assert_equal(found: dict[str, torch.Tensor], expected: Arrays) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == torch.float32
        assert found[name].is_contiguous()
        assert found[name].numpy().tobytes() == array.tobytes(), name


def expected_values(spec: ModelSpec, tensors: Arrays, storage: StorageType) -> Arrays:
    """What the `gguf` library makes of the quantised tensors; rows stay in our order."""
    return {
        name: rounded(array, storage) if quantised(name, array, storage) else array
        for name, array in tensors.items()
    }


@pytest.mark.parametrize("storage", StorageType)
@pytest.mark.parametrize("changes", [{}, {"qkv_bias": True, "out_bias": True, "mlp_bias": True}])
def test_gguf(tmp_path: Path, storage: StorageType, changes: dict[str, bool]) -> None:
    wide = {"hidden": 256, "intermediate": 256} if storage.endswith("_K") else {}
    spec = replace(TINY_SPEC, **wide, **changes)
    tensors = random_tensors(spec, seed=3)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "a.gguf", spec, tensors, storage=storage))
    expected = expected_values(spec, tensors, storage)
    assert_equal(load_weights(checkpoint, cache_dir=None), expected)
    for _ in range(2):
        assert_equal(load_weights(checkpoint, cache_dir=tmp_path / "cache"), expected)


@pytest.mark.parametrize("storage", [StorageType.F32, StorageType.F16, StorageType.BF16])
@pytest.mark.parametrize("shards", [1, 2])
def test_hf_folder(tmp_path: Path, storage: StorageType, shards: int) -> None:
    tensors = random_tensors(TINY_SPEC, seed=3)
    folder = write_hf_folder(tmp_path / "a", TINY_SPEC, tensors, storage=storage, shards=shards)
    checkpoint = open_checkpoint(folder)
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[storage]
    expected = {n: torch.tensor(a).to(dtype).float().numpy() for n, a in tensors.items()}
    for cache_dir in (None, tmp_path / "cache", tmp_path / "cache"):
        assert_equal(load_weights(checkpoint, cache_dir=cache_dir), expected)


def test_weights_that_need_no_conversion_are_not_copied_to_the_cache(tmp_path: Path) -> None:
    folder = write_hf_folder(tmp_path / "a", TINY_SPEC, random_tensors(TINY_SPEC, seed=3))
    load_weights(open_checkpoint(folder), cache_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.fixture(scope="module")
def smollm2() -> Smollm2:
    """The real model: its checkpoint, our weights, and the `gguf` library's tensors."""
    checkpoint = open_checkpoint(resolve("smollm2-135m"))
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(checkpoint.path).tensors}
    return checkpoint, load_weights(checkpoint, cache_dir=None), theirs


def test_smollm2_is_what_the_gguf_library_reads(smollm2: Smollm2) -> None:
    checkpoint, found, theirs = smollm2
    for number, entry in enumerate(checkpoint.tensors.values()):
        if number % 9:  # every ninth tensor: all kinds, in a ninth of the time
            continue
        source = theirs[entry.source_name]
        values = gguf.quants.dequantize(source.data, source.tensor_type)
        if entry.interleaved_heads is not None:
            found_rows = interleave(found[entry.name].numpy(), entry.interleaved_heads)
        else:
            found_rows = found[entry.name].numpy()
        assert found_rows.tobytes() == values.tobytes(), entry.name


def test_row_order_is_transformers_own(smollm2: Smollm2) -> None:
    from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

    _, found, theirs = smollm2
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    for name in ("q_proj", "k_proj", "v_proj"):
        source = theirs[f"blk.7.attn_{name[0]}.weight"]
        values = gguf.quants.dequantize(source.data, source.tensor_type)
        expected = LlamaTensorProcessor(heads).process(values, source.name).weights
        ours = found[f"model.layers.7.self_attn.{name}.weight"].numpy()
        assert ours.tobytes() == expected.tobytes()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 4))
def test_deinterleave_undoes_interleave(heads: int, pairs: int, columns: int) -> None:
    shape = (heads * 2 * pairs, *([columns] if columns else []))
    rows = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert np.array_equal(deinterleave(torch.tensor(interleave(rows, heads)), heads), rows)


Open = Callable[[float], Checkpoint]


@pytest.fixture(params=["gguf", "gguf-f16", "hf"])
def poisoned(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """A checkpoint with one value that is not finite, in layer 1's down_proj."""

    def opened(value: float) -> Checkpoint:
        tensors = random_tensors(TINY_SPEC, seed=3)
        tensors["model.layers.1.mlp.down_proj.weight"][5, 7] = value
        if request.param == "hf":
            return open_checkpoint(write_hf_folder(tmp_path / "a", TINY_SPEC, tensors))
        storage = StorageType.F16 if request.param == "gguf-f16" else StorageType.F32
        path = tmp_path / "a.gguf"
        return open_checkpoint(write_gguf(path, TINY_SPEC, tensors, storage=storage))

    return opened


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("cached", [False, True])
def test_values_that_are_not_finite(
    poisoned: Open, tmp_path: Path, value: float, cached: bool
) -> None:
    checkpoint = poisoned(value)
    cache_dir = tmp_path / "cache" if cached else None
    with pytest.raises(ModelFileError, match=r"(blk.1.ffn_down|1.mlp.down_proj).*NaN or infinite"):
        load_weights(checkpoint, cache_dir=cache_dir)
    assert not list(tmp_path.glob("cache/weights/*"))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_loads_whole_or_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    spec = replace(TINY_SPEC, layers=1, hidden=32, intermediate=32)
    storage = data.draw(st.sampled_from(StorageType))
    tensors = random_tensors(spec, seed=3)
    path = write_gguf(tmp_path / "written.gguf", spec, tensors, storage=storage)
    content = bytearray(path.read_bytes())
    tables = content.index(b"token_embd.weight")
    where = st.integers(tables, tables + 900) | st.integers(0, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(where)] = data.draw(st.sampled_from([0, 1, 2, 127, 255]))
    damaged = tmp_path / "damaged.gguf"
    damaged.unlink(missing_ok=True)
    damaged.write_bytes(content)
    try:
        checkpoint = open_checkpoint(damaged)
        found = load_weights(checkpoint, cache_dir=None)
    except ModelFileError as error:
        assert str(damaged) in str(error)
        return
    shapes = {name: tuple(values.shape) for name, values in found.items()}
    assert shapes == dict(expected_shapes(checkpoint.spec))
    assert all(torch.isfinite(values).all() for values in found.values())


def test_unknown_dtype(tmp_path: Path) -> None:
    tensors = random_tensors(TINY_SPEC, seed=3)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "a.gguf", TINY_SPEC, tensors))
    with pytest.raises(UsageError, match="'int3' is not supported; supported: int8, fp32"):
        load_llama(checkpoint, dtype="int3", cache_dir=None)
