"""From GGUF metadata to the model's spec: equal to what was written, or refused by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import (
    FrequencyFactors,
    GgufTokenizer,
    LinearScaling,
    ModelSpec,
    StorageType,
    open_checkpoint,
)
from antiphon.checkpoint.families import LLAMA
from antiphon.checkpoint.gguf_file import GgufFile, read_gguf
from antiphon.checkpoint.gguf_model import entries_from_gguf, from_gguf_name, spec_from_gguf
from antiphon.checkpoint.gguf_tokenizer import tokenizer_from_gguf
from antiphon.checkpoint.model_spec import find_flaw
from antiphon.errors import ModelFileError
from antiphon.testing.family_metadata import to_gguf_name
from antiphon.testing.tiny_models import random_tensors, write_gguf

SPECS = st.builds(
    lambda kv_heads, group, pairs, **rest: {
        "kv_heads": kv_heads,
        "heads": kv_heads * group,
        "head_dim": 2 * pairs,
        **rest,
    },
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    pairs=st.integers(1, 5),
    layers=st.integers(1, 3),
    hidden=st.integers(1, 40),
    intermediate=st.integers(1, 40),
    context_len=st.integers(1, 2**20),
    rope_theta=st.sampled_from([10000.0, 500000.0, 1e6]),
    tied_embeddings=st.booleans(),
    qkv_bias=st.booleans(),
    out_bias=st.booleans(),
    mlp_bias=st.booleans(),
    rope_scaling=st.sampled_from([None, LinearScaling(factor=2.0)]),
)


@settings(max_examples=40, deadline=None)
@given(changes=SPECS)
def test_what_is_written_is_read(
    tiny_spec: ModelSpec, tmp_path_factory: pytest.TempPathFactory, changes: dict[str, object]
) -> None:
    spec = replace(tiny_spec, rms_norm_eps=2.0**-17, **changes)
    path = tmp_path_factory.mktemp("written") / "a.gguf"
    found = open_checkpoint(write_gguf(path, spec, random_tensors(spec, seed=0)))
    assert found.spec == spec
    for entry in found.tensors.values():
        heads = {"q_proj": spec.heads, "k_proj": spec.kv_heads}
        expected = next((n for part, n in heads.items() if part in entry.name), None)
        assert entry.interleaved_heads == expected
        assert to_gguf_name(spec, entry.name) == entry.source_name
        assert from_gguf_name(entry.source_name, LLAMA) == entry.name


def test_frequency_factors(tiny_spec: ModelSpec, tmp_path: Path) -> None:
    scaling = FrequencyFactors(factors=(1.0, 1.0, 2.5, 8.0, 8.0))
    spec = replace(tiny_spec, rope_scaling=scaling)
    path = write_gguf(tmp_path / "a.gguf", spec, random_tensors(spec, seed=0))
    assert open_checkpoint(path).spec.rope_scaling == scaling


def test_tokenizer(tiny_gguf: Path) -> None:
    found = open_checkpoint(tiny_gguf).tokenizer
    assert isinstance(found, GgufTokenizer)
    fields = gguf.GGUFReader(tiny_gguf).fields
    assert list(found.tokens) == fields["tokenizer.ggml.tokens"].contents()
    assert list(found.merges) == fields["tokenizer.ggml.merges"].contents()
    assert list(found.token_types) == fields["tokenizer.ggml.token_type"].contents()
    assert found.chat_template == fields["tokenizer.chat_template"].contents()
    assert (found.model, found.pre, found.scores) == ("gpt2", "smollm", ())
    assert (found.eos_token_ids, found.bos_token_id, found.add_bos) == ((2,), 1, False)


Write = Callable[..., Path]
Refusal = Callable[[Path], str]


@pytest.fixture
def write(tiny_spec: ModelSpec, tmp_path: Path) -> Write:
    """Write a tiny file with a changed spec, without some tensors, with others reshaped."""

    def written(*, drop: str = "", reshape: str = "", **changes: object) -> Path:
        tensors = random_tensors(tiny_spec, seed=0)
        if drop:
            del tensors[drop]
        if reshape:
            tensors[reshape] = np.concatenate([tensors[reshape], tensors[reshape]])
        return write_gguf(tmp_path / "a.gguf", replace(tiny_spec, **changes), tensors)

    return written


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"drop": "model.layers.1.mlp.up_proj.weight"}, "'blk.1.ffn_up.weight': is missing"),
        ({"drop": "model.norm.weight"}, "'output_norm.weight': is missing"),
        ({"reshape": "model.layers.0.mlp.up_proj.weight"}, "'blk.0.ffn_up.weight': has shape"),
        ({"hidden": 97}, "'token_embd.weight': has shape"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0"),
        ({"vocab_size": 270}, "'llama.vocab_size' is 270, must be 271"),
        ({"eos_token_ids": (271,)}, "special token id 271 is outside"),
        ({"rope_scaling": LinearScaling(factor=0.0)}, "factor is 0.0"),
        ({"rope_scaling": FrequencyFactors(factors=(1.0,))}, "1 RoPE frequency factors"),
        (
            {"rope_scaling": FrequencyFactors(factors=(1.0, 1.0, float("nan"), 1.0, 1.0))},
            "RoPE frequency factor is nan",
        ),
    ],
)
def test_refused(write: Write, refusal: Refusal, changes: dict[str, object], problem: str) -> None:
    assert problem in refusal(write(**changes))


@pytest.mark.parametrize(
    ("key", "number", "problem"),
    [
        ("llama.block_count", 0, "layers is 0"),
        ("llama.block_count", 1, "': is not part of a llama model of this config"),
        ("llama.block_count", 2**31 - 1, "'blk.2.attn_norm.weight': is missing"),
        ("llama.block_count", 2**32 - 1, "layers is 4294967295"),
        ("llama.attention.head_count", 0, "heads is 0"),
        ("llama.attention.head_count", 2**31, "heads is 2147483648"),
        ("llama.attention.head_count_kv", 4, "6 attention heads can't share 4"),
        ("llama.embedding_length", 97, "'token_embd.weight': has shape [271, 96]"),
    ],
)
def test_lying_counts(
    tiny_gguf: Path, tmp_path: Path, refusal: Refusal, key: str, number: int, problem: str
) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    value = content.index(len(key).to_bytes(8, "little") + key.encode()) + 8 + len(key) + 4
    content[value : value + 4] = number.to_bytes(4, "little")
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    assert problem in refusal(path)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("general.architecture", "gpt2", "architecture 'gpt2' is not supported"),
        ("general.architecture", None, "'general.architecture' is missing"),
        ("llama.block_count", None, "'llama.block_count' is missing, must be an integer"),
        ("llama.block_count", "two", "'llama.block_count' is 'two', must be an integer"),
        ("llama.block_count", True, "'llama.block_count' is True"),
        ("llama.attention.head_count_kv", np.array([2, 2]), "must be an integer"),
        ("llama.attention.layer_norm_rms_epsilon", "x", "must be a number"),
        ("llama.attention.value_length", 12, "must be 10, the size of an attention head"),
        ("llama.rope.dimension_count", 8, "must be 10, the size of an attention head"),
        ("llama.rope.scaling.type", "dynamic", "RoPE scaling 'dynamic' is not supported"),
        ("llama.rope.scaling.type", "yarn", "'llama.rope.scaling.factor' is missing"),
        ("llama.rope.scaling.type", "longrope", "'rope_factors_long.weight': is missing"),
        ("llama.expert_count", 8, "'llama.expert_used_count' is missing"),
        ("llama.attention.sliding_window", -1, "must be at least 0"),
    ],
)
def test_metadata_refused(tiny_gguf: Path, key: str, value: object, problem: str) -> None:
    file = read_gguf(tiny_gguf)
    metadata = {k: v for k, v in {**file.metadata, key: value}.items() if v is not None}
    with pytest.raises(ModelFileError, match=problem):
        spec_from_gguf(GgufFile(path=file.path, metadata=metadata, tensors=file.tensors))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_metadata_gives_a_spec_or_a_refusal(tiny_gguf: Path, data: st.DataObject) -> None:
    file = read_gguf(tiny_gguf)
    key = data.draw(st.sampled_from([k for k in file.metadata if k.startswith("llama.")]))
    value = data.draw(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(("a", "b"))
    )
    changed = GgufFile(path=file.path, metadata={**file.metadata, key: value}, tensors=file.tensors)
    try:
        spec = spec_from_gguf(changed)
    except ModelFileError:
        return
    find_flaw(spec)


@pytest.mark.parametrize("storage", [StorageType.Q4_0, StorageType.Q8_0, StorageType.BF16])
def test_storage_types(tiny_spec: ModelSpec, tmp_path: Path, storage: StorageType) -> None:
    tensors = random_tensors(tiny_spec, seed=0)
    found = open_checkpoint(write_gguf(tmp_path / "a.gguf", tiny_spec, tensors, storage=storage))
    assert found.tensors["model.layers.0.mlp.up_proj.weight"].storage is storage
    assert found.tensors["model.norm.weight"].storage is StorageType.F32


def altered(path: Path, **changes: object) -> GgufFile:
    """The header of `path` with tokenizer keys set, or removed for None."""
    file = read_gguf(path)
    keys = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    metadata = {k: v for k, v in {**file.metadata, **keys}.items() if v is not None}
    return GgufFile(path=path, metadata=metadata, tensors=file.tensors)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": None}, "'tokenizer.ggml.model' is missing"),
        ({"tokens": None}, "'tokenizer.ggml.tokens' is missing, must be a list of strings"),
        ({"tokens": np.array([1])}, "must be a list of strings"),
        ({"tokens": ("a",), "token_type": None}, "1 tokens, but the embedding matrix has 271"),
        ({"merges": None}, "'tokenizer.ggml.merges' is missing"),
        ({"token_type": np.zeros(5)}, "must be a list of 271 numbers, one for each token"),
        ({"scores": "high"}, "must be a list of 271 numbers"),
        ({"add_bos_token": 1}, "must be true or false"),
        ({"add_space_prefix": "no"}, "must be true or false"),
    ],
)
def test_tokenizer_refused(tiny_gguf: Path, changes: dict[str, object], problem: str) -> None:
    file = altered(tiny_gguf, **changes)
    with pytest.raises(ModelFileError, match=problem):
        tokenizer_from_gguf(file, spec_from_gguf(file))


@pytest.mark.parametrize(
    ("changes", "add_bos"),
    [
        ({}, False),
        ({"add_bos_token": True}, True),
        ({"add_bos_token": True, "bos_token_id": None}, False),
        ({"add_bos_token": None}, False),
        ({"add_bos_token": None, "pre": "llama-bpe"}, True),
        ({"add_bos_token": None, "model": "llama", "merges": None}, True),
    ],
)
def test_add_bos(tiny_gguf: Path, changes: dict[str, object], add_bos: bool) -> None:
    file = altered(tiny_gguf, **changes)
    assert tokenizer_from_gguf(file, spec_from_gguf(file)).add_bos is add_bos


@pytest.mark.parametrize(("said", "found"), [(None, True), (True, True), (False, False)])
def test_space_prefix(tiny_gguf: Path, said: bool | None, found: bool) -> None:
    file = altered(tiny_gguf, add_space_prefix=said)
    assert tokenizer_from_gguf(file, spec_from_gguf(file)).space_prefix is found


def test_scores_and_every_end_token(tiny_gguf: Path) -> None:
    scores = np.arange(271, dtype=np.float32)
    file = altered(tiny_gguf, scores=scores, eot_token_id=5, eom_token_id=2)
    found = tokenizer_from_gguf(file, spec_from_gguf(file))
    assert found.scores == tuple(scores.tolist())
    assert found.eos_token_ids == (2, 5)


def test_missing_embedding_and_foreign_tensor(tiny_gguf: Path) -> None:
    file = read_gguf(tiny_gguf)
    spec = spec_from_gguf(file)
    tensors = dict(file.tensors)
    embedding = tensors.pop("token_embd.weight")
    headless = GgufFile(path=file.path, metadata=file.metadata, tensors=tensors)
    with pytest.raises(ModelFileError, match=r"'token_embd.weight': is missing"):
        spec_from_gguf(headless)
    norm = replace(embedding, name="blk.0.attn_q_norm.weight")
    tensors = {**file.tensors, norm.name: norm}
    foreign = GgufFile(path=file.path, metadata=file.metadata, tensors=tensors)
    with pytest.raises(ModelFileError, match=r"'blk.0.attn_q_norm.weight': is not part of a llama"):
        entries_from_gguf(foreign, spec)


def test_contradicting_rope_scaling(tiny_gguf: Path) -> None:
    file = read_gguf(tiny_gguf)
    tensors = {**file.tensors, "rope_freqs.weight": file.tensors["output_norm.weight"]}
    metadata = {**file.metadata, "llama.rope.scaling.type": "linear"}
    with pytest.raises(ModelFileError, match="exclude each other"):
        spec_from_gguf(GgufFile(path=file.path, metadata=metadata, tensors=tensors))
    huge = {**file.tensors, "rope_freqs.weight": file.tensors["token_embd.weight"]}
    with pytest.raises(ModelFileError, match=r"'rope_freqs.weight': has too many elements"):
        spec_from_gguf(GgufFile(path=file.path, metadata=file.metadata, tensors=huge))
