"""Hugging Face folders: equal to what was written, or refused by name."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import (
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    StorageType,
    TokenizerFiles,
    YarnScaling,
    open_checkpoint,
)
from antiphon.errors import ModelFileError
from antiphon.testing.tiny_models import CHAT_TEMPLATE, random_tensors, write_hf_folder

Edit = Callable[..., Path]
Refusal = Callable[[Path], str]

LLAMA3 = Llama3Scaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_len=64
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied_embeddings": True},
        {"qkv_bias": True, "out_bias": True, "mlp_bias": True},
        {"rope_scaling": LinearScaling(factor=4.0)},
        {"rope_scaling": LLAMA3, "eos_token_ids": (2, 0)},
        {"head_dim": 16, "heads": 6, "kv_heads": 6},
    ],
)
@pytest.mark.parametrize("storage", [StorageType.F32, StorageType.F16, StorageType.BF16])
@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_written_is_read(
    tiny_spec: ModelSpec,
    tmp_path: Path,
    changes: dict[str, object],
    storage: StorageType,
    shards: int,
) -> None:
    spec = replace(tiny_spec, **changes)
    tensors = random_tensors(spec, seed=2)
    found = open_checkpoint(
        write_hf_folder(tmp_path / "a", spec, tensors, storage=storage, shards=shards)
    )
    assert found.spec == spec
    assert set(found.tensors) == set(tensors)
    assert {entry.storage for entry in found.tensors.values()} == {storage}
    if storage is StorageType.F32:
        for name, array in tensors.items():
            assert found.tensors[name].raw.tobytes() == array.tobytes()


def test_older_rope_keys(edit_config: Edit) -> None:
    scaling = {
        "type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    folder = edit_config(rope_parameters=..., rope_scaling=scaling, rope_theta=500000.0)
    spec = open_checkpoint(folder).spec
    assert (spec.rope_theta, spec.rope_scaling) == (500000.0, LLAMA3)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}


def test_both_rope_keys_may_say_the_same(edit_config: Edit) -> None:
    older = {"type" if key == "rope_type" else key: value for key, value in YARN.items()}
    folder = edit_config(rope_parameters=YARN | {"rope_theta": 5000.0}, rope_scaling=older)
    spec = open_checkpoint(folder).spec
    assert spec.rope_theta == 5000.0 and isinstance(spec.rope_scaling, YarnScaling)


@pytest.mark.parametrize("scaling", [YARN, {"type": "spiral"}, YARN | {"factor": 2.0}])
def test_scaling_that_is_added_beside_other_parameters_is_not_passed_over(
    edit_config: Edit, refusal: Refusal, scaling: dict[str, object]
) -> None:
    """As model cards say: add `rope_scaling` to config.json for long contexts."""
    given = YARN if scaling != YARN else {"rope_type": "default", "rope_theta": 10000.0}
    folder = edit_config(rope_parameters=given, rope_scaling=scaling)
    assert "'rope_scaling' says something else than 'rope_parameters'" in refusal(folder)


def test_mistral_with_and_without_a_window(edit_config: Edit) -> None:
    for window, windows in ((..., ()), (None, ()), (256, ()), (100, (100, 100))):
        folder = edit_config(architectures=["MistralForCausalLM"], sliding_window=window)
        spec = open_checkpoint(folder).spec
        assert (spec.architecture, spec.windows) == ("mistral", windows)


def test_a_saved_tied_output_is_ignored(edit_config: Edit) -> None:
    found = open_checkpoint(edit_config(tie_word_embeddings=True))
    assert "lm_head.weight" not in found.tensors


def test_generation_config_says_where_to_stop(tiny_folder: Path) -> None:
    (tiny_folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    found = open_checkpoint(tiny_folder)
    assert found.spec.eos_token_ids == found.tokenizer.eos_token_ids == (0, 2)


def test_tokenizer(tiny_folder: Path) -> None:
    found = open_checkpoint(tiny_folder).tokenizer
    assert isinstance(found, TokenizerFiles)
    assert found.tokenizer_json == tiny_folder / "tokenizer.json"
    assert found.config["eos_token"] == "<|im_end|>"
    assert (found.chat_template, found.add_bos) == (CHAT_TEMPLATE, False)


def test_chat_template_of_its_own_file_wins(tiny_folder: Path) -> None:
    (tiny_folder / "chat_template.jinja").write_text("{{ messages }}")
    assert open_checkpoint(tiny_folder).tokenizer.chat_template == "{{ messages }}"


def test_bos_from_the_post_processor(tiny_folder: Path) -> None:
    path = tiny_folder / "tokenizer.json"
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {}}, {"Sequence": {}}]}
    processor = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"post_processor": processor}))
    assert open_checkpoint(tiny_folder).tokenizer.add_bos
    config = tiny_folder / "tokenizer_config.json"
    config.write_text('{"add_bos_token": false}')
    assert not open_checkpoint(tiny_folder).tokenizer.add_bos


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "'GPT2LMHeadModel'] is not supported"),
        ({"architectures": []}, "architecture [] is not supported"),
        ({"architectures": ..., "model_type": "gpt2"}, "'gpt2'] is not supported"),
        ({"architectures": ..., "model_type": ...}, "'model_type' is missing"),
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu', must be 'silu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ({"num_hidden_layers": ...}, "'num_hidden_layers' is missing"),
        ({"num_hidden_layers": "2"}, "'num_hidden_layers' is '2', must be an integer"),
        ({"num_hidden_layers": 0}, "layers is 0"),
        ({"num_hidden_layers": 10**30}, "layers is 1000"),
        ({"num_hidden_layers": 3}, "'model.layers.2.input_layernorm.weight': is missing"),
        ({"num_hidden_layers": 1}, "is not part of a llama model of this config"),
        ({"hidden_size": 95}, "has shape [271, 96], but the model's config says [271, 95]"),
        ({"head_dim": 9}, "head_dim is 9"),
        ({"rms_norm_eps": float("nan")}, "NaN is not a JSON number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0.0"),
        ({"rms_norm_eps": 10**400}, "must be a number of usual size"),
        ({"rope_parameters": [1]}, "'rope_parameters' is [1], must be an object"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "RoPE scaling 'dynamic' is not supported"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "'short_factor' is missing"),
        ({"rope_parameters": {"rope_type": "linear"}}, "'factor' is missing"),
        ({"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is 0.5, must be 1 for llama"),
        ({"eos_token_id": "2"}, "must be a token id or a list of token ids"),
        ({"eos_token_id": [271]}, "special token id 271 is outside"),
        ({"tie_word_embeddings": 1}, "must be true or false"),
    ],
)
def test_config_refused(
    edit_config: Edit, refusal: Refusal, changes: dict[str, object], problem: str
) -> None:
    assert problem in refusal(edit_config(**changes))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"a":' + b"[" * 100_000, "not valid JSON"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_bad_json(
    tiny_folder: Path, refusal: Refusal, name: str, content: bytes, problem: str
) -> None:
    (tiny_folder / name).write_bytes(content)
    line = refusal(tiny_folder)
    assert problem in line
    assert name in line


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_files(tiny_folder: Path, refusal: Refusal, name: str) -> None:
    (tiny_folder / name).unlink()
    assert name in refusal(tiny_folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_refused(tiny_folder: Path, refusal: Refusal, name: str) -> None:
    (tiny_folder / "model.safetensors").rename(tiny_folder / name)
    assert "convert them to safetensors" in refusal(tiny_folder)
    assert "convert them to safetensors" in refusal(tiny_folder / name)


def test_a_single_weights_file_of_another_name(tiny_folder: Path) -> None:
    (tiny_folder / "model.safetensors").rename(tiny_folder / "weights.safetensors")
    assert open_checkpoint(tiny_folder).tensors


def test_several_files_without_index(tiny_folder: Path, refusal: Refusal) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        os.link(tiny_folder / "model.safetensors", tiny_folder / name)
    (tiny_folder / "model.safetensors").unlink()
    assert "several .safetensors files" in refusal(tiny_folder)


@pytest.fixture
def sharded(tiny_spec: ModelSpec, tmp_path: Path) -> Path:
    tensors = random_tensors(tiny_spec, seed=2)
    return write_hf_folder(tmp_path / "sharded", tiny_spec, tensors, shards=2)


def test_missing_shard(sharded: Path, refusal: Refusal) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors: this shard is missing" in refusal(sharded)


@pytest.mark.parametrize(
    ("weight_map", "problem"),
    [
        (None, "'weight_map' is missing or empty"),
        ({}, "'weight_map' is missing or empty"),
        ({"a": "../secret.safetensors"}, "is not the name of a file in this folder"),
        ({"a": "/etc/passwd"}, "is not the name of a file in this folder"),
        ({"a": 3}, "is not the name of a file in this folder"),
        ({"a": "pytorch_model.bin"}, "is not a .safetensors file"),
        ({"a": "model-00001-of-00002.safetensors"}, "'a': lacks this tensor"),
    ],
)
def test_bad_index(sharded: Path, refusal: Refusal, weight_map: object, problem: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert problem in refusal(sharded)


def test_tensor_in_two_shards(sharded: Path, refusal: Refusal) -> None:
    first, second = (sharded / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    second.write_bytes(first.read_bytes())
    assert "is in two shards" in refusal(sharded)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_config_opens_or_is_refused(tiny_folder: Path, data: st.DataObject) -> None:
    path = tiny_folder / "config.json"
    original = path.read_text()
    config = json.loads(original)
    config[data.draw(st.sampled_from(sorted(config)))] = data.draw(JSON)
    try:
        path.write_text(json.dumps(config))
        open_checkpoint(tiny_folder)
    except ModelFileError as error:
        assert str(tiny_folder) in str(error)
    finally:
        path.write_text(original)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ([{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "rag", "template": "r"}], None),
        ([], None),
        (None, None),
        ("t", "t"),
    ],
)
def test_named_chat_templates(tiny_folder: Path, template: object, expected: str | None) -> None:
    (tiny_folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert open_checkpoint(tiny_folder).tokenizer.chat_template == expected


def test_bad_chat_templates(tiny_folder: Path, refusal: Refusal) -> None:
    (tiny_folder / "tokenizer_config.json").write_text('{"chat_template": 3}')
    assert "'chat_template' is 3, must be text" in refusal(tiny_folder)
    (tiny_folder / "chat_template.jinja").write_bytes(b"\xff")
    assert "chat_template.jinja" in refusal(tiny_folder)
