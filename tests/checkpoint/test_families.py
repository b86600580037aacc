"""Every family's files, in both formats: equal to what was written, or refused by name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from antiphon.checkpoint import FAMILIES, LongRopeScaling, YarnScaling, open_checkpoint
from antiphon.checkpoint.facts import Facts
from antiphon.checkpoint.gguf_file import GgufFile, read_gguf
from antiphon.checkpoint.gguf_model import spec_from_gguf
from antiphon.checkpoint.hf_config import hf_config, hf_tensors
from antiphon.checkpoint.hf_rope import rope_of
from antiphon.errors import ModelFileError
from antiphon.testing.family_oracle import gguf_spec
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_gguf, write_hf_folder

Refusal = Callable[[Path], str]
EACH = pytest.mark.parametrize("family", FAMILY_SPECS)
QUIRKY = pytest.mark.parametrize("family", ["qwen2", "qwen3", "phi3", "gemma3", "mixtral", "dots1"])


def in_32_bits(value: object) -> object:
    """What GGUF keeps of a spec's numbers."""
    match value:
        case float():
            return float(np.float32(value))
        case tuple():
            return tuple(map(in_32_bits, value))
        case object(__dataclass_fields__=names):
            return replace(value, **{name: in_32_bits(getattr(value, name)) for name in names})
    return value


@EACH
def test_what_a_folder_says_is_read(family: str, tmp_path: Path) -> None:
    spec = FAMILY_SPECS[family]
    tensors = random_tensors(spec, seed=2)
    found = open_checkpoint(write_hf_folder(tmp_path / "a", spec, tensors))
    assert found.spec == spec
    assert set(found.tensors) == set(tensors)
    for name, entry in found.tensors.items():
        values = entry.raw.view(np.float32).reshape(entry.shape) + np.float32(entry.offset)
        assert np.array_equal(values, tensors[name]), name


@EACH
def test_what_a_gguf_file_says_is_read(family: str, tmp_path: Path) -> None:
    spec = gguf_spec(FAMILY_SPECS[family])
    tensors = random_tensors(spec, seed=2)
    found = open_checkpoint(write_gguf(tmp_path / "a.gguf", spec, tensors))
    named = replace(found.spec, architecture=spec.architecture)
    assert in_32_bits(named) == in_32_bits(spec)
    assert set(found.tensors) == set(tensors)
    for name, entry in found.tensors.items():
        values = entry.raw.view(np.float32).reshape(entry.shape)
        if entry.interleaved_heads is None:
            assert np.array_equal(values, tensors[name]), name


def test_every_family_is_here() -> None:
    assert {spec.architecture for spec in FAMILY_SPECS.values()} == {f.name for f in FAMILIES}


@QUIRKY
@pytest.mark.parametrize("format", ["folder", "gguf"])
def test_a_missing_tensor_is_named_as_the_file_would_name_it(
    family: str, format: str, tmp_path: Path, refusal: Refusal
) -> None:
    """One that the family has otherwise than Llama: fused, renamed or of its own."""
    spec = FAMILY_SPECS[family]
    ours, theirs, gguf = {
        "qwen2": ("self_attn.k_proj.bias", "self_attn.k_proj.bias", "attn_k.bias"),
        "qwen3": ("self_attn.q_norm.weight", "self_attn.q_norm.weight", "attn_q_norm.weight"),
        "phi3": ("mlp.gate_proj.weight", "mlp.gate_up_proj.weight", "ffn_up.weight"),
        "gemma3": ("mlp.out_norm.weight", "post_feedforward_layernorm.weight", "post_ffw_norm"),
        "mixtral": (
            "mlp.experts.3.up_proj.weight",
            "block_sparse_moe.experts.3.w3.weight",
            "ffn_up_exps.weight",
        ),
        "dots1": (
            "mlp.correction.bias",
            "mlp.gate.e_score_correction_bias",
            "exp_probs_b.bias",
        ),
    }[family]
    tensors = random_tensors(spec, seed=2)
    del tensors[f"model.layers.1.{ours}"]
    if family == "phi3":
        del tensors["model.layers.1.mlp.up_proj.weight"]
    if format == "gguf":
        line = refusal(write_gguf(tmp_path / "a.gguf", spec, tensors))
        assert f"'blk.1.{gguf}" in line
    else:
        line = refusal(write_hf_folder(tmp_path / "a", spec, tensors))
        assert f"'model.layers.1.{theirs}': is missing" in line


@QUIRKY
def test_a_tensor_of_another_shape_is_named(family: str, tmp_path: Path, refusal: Refusal) -> None:
    spec = FAMILY_SPECS[family]
    folder = write_hf_folder(tmp_path / "a", spec, random_tensors(spec, seed=2))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 87}))
    line = refusal(folder)
    assert "has shape" in line
    assert "'model.layers.0." in line


@pytest.mark.parametrize(
    ("family", "changes", "problem"),
    [
        ("gemma3", {"final_logit_softcapping": 30.0}, "soft-capping is not supported"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "soft-capping is not supported"),
        ("gemma3", {"use_bidirectional_attention": True}, "must be false"),
        ("gemma3", {"hidden_activation": "gelu"}, "must be 'gelu_pytorch_tanh'"),
        ("gemma3", {"layer_types": ["full_attention"]}, "a list of 6 kinds"),
        ("gemma3", {"layer_types": ["chunked_attention"] * 6}, "full_attention"),
        ("gemma3", {"query_pre_attn_scalar": 0}, "must be a positive number"),
        ("qwen2", {"use_sliding_window": 1}, "must be true or false"),
        ("phi3", {"sliding_window": 0}, "'sliding_window' is 0, must be null or at least 1"),
        ("phi3", {"rope_parameters": {"rope_type": "ntk"}}, "RoPE scaling 'ntk'"),
        ("phi3", {"rope_parameters": {"partial_rotary_factor": 1.5}}, "partial_rotary_factor"),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn"}}, None),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn", "factor": -1}}, "factor is -1.0"),
        ("qwen3", {"rope_parameters": {"rope_type": "longrope", "short_factor": ["a"]}},
         "'short_factor' is ['a'], must be a list of numbers"),
    ],
)  # fmt: skip
def test_variants_are_refused_by_name(
    family: str, changes: dict[str, object], problem: str | None, tmp_path: Path, refusal: Refusal
) -> None:
    spec = FAMILY_SPECS[family]
    folder = write_hf_folder(tmp_path / "a", spec, random_tensors(spec, seed=2))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    if problem is None:
        assert isinstance(open_checkpoint(folder).spec.rope_scaling, YarnScaling)
    else:
        assert problem in refusal(folder)


def test_gemma_beside_an_image_model(tmp_path: Path) -> None:
    """Only the language model is read: its keys lie deeper, its tensors behind a prefix."""
    spec = FAMILY_SPECS["gemma3"]
    tensors = random_tensors(spec, seed=2)
    folder = write_hf_folder(tmp_path / "a", spec, tensors)
    inner = hf_config(spec)
    outer = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": inner,
        "vision_config": {"hidden_size": 8},
    }
    (folder / "config.json").write_text(json.dumps(outer))
    plain = open_checkpoint(folder)
    for prefix in ("language_model.", "model.language_model."):
        stored = {
            prefix + (name if prefix == "language_model." else name.removeprefix("model.")): array
            for name, array in hf_tensors(spec, tensors).items()
        }
        image = np.zeros((2, 2), np.float32)
        stored |= {"vision_tower.a.weight": image, "multi_modal_projector.b.weight": image}
        save_file(stored, folder / "model.safetensors")
        found = open_checkpoint(folder)
        assert found.spec == plain.spec
        assert set(found.tensors) == set(tensors)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rope_theta": 7.0}, (7.0, 1.0)),
        ({"rope_parameters": {"rope_theta": 8.0, "partial_rotary_factor": 0.75}}, (8.0, 0.75)),
        ({"rope_parameters": {"full_attention": {"rope_theta": 9.0}}}, (9.0, 1.0)),
        ({"rope_scaling": {"type": "default"}, "rope_theta": 6.0}, (6.0, 1.0)),
    ],
)
def test_rope_of_older_and_newer_files(
    keys: dict[str, object], expected: tuple[float, float]
) -> None:
    rope = rope_of(Facts(Path("config.json"), keys), "phi3")
    assert (rope.theta, rope.share, rope.scaling) == (*expected, None)


def test_longrope_of_phi_3s_first_files() -> None:
    """They call it `su`, and keep the original context beside it."""
    keys = {
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [2]},
    }
    scaling = rope_of(Facts(Path("config.json"), keys), "phi3").scaling
    assert isinstance(scaling, LongRopeScaling)
    assert (scaling.short, scaling.long, scaling.original_context_len) == ((1.0,), (2.0,), 4096)
    assert scaling.attention_factor == pytest.approx(1.19024, abs=1e-5)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("gemma3.attention.sliding_window", None, "must be at least 1"),
        ("gemma3.attention.sliding_window_pattern", 0, "must be at least 1"),
        ("gemma3.attention.sliding_window_pattern", np.array([True]), "a list of 6"),
        ("gemma3.rope.dimension_count", 10, "must be 20, the size of an attention head"),
        ("gemma3.rope.scaling.type", "su", "RoPE scaling 'su' is not supported"),
    ],
)
def test_metadata_refused(tmp_path: Path, key: str, value: object, problem: str) -> None:
    spec = FAMILY_SPECS["gemma3"]
    file = read_gguf(write_gguf(tmp_path / "a.gguf", spec, random_tensors(spec, seed=2)))
    metadata = {k: v for k, v in {**file.metadata, key: value}.items() if v is not None}
    with pytest.raises(ModelFileError, match=problem):
        spec_from_gguf(GgufFile(path=file.path, metadata=metadata, tensors=file.tensors))


def test_gemmas_window_pattern_may_be_said(tmp_path: Path) -> None:
    spec = FAMILY_SPECS["gemma3"]
    file = read_gguf(write_gguf(tmp_path / "a.gguf", spec, random_tensors(spec, seed=2)))
    for said, windows in (
        (np.array([True, False] * 3), (50, 0) * 3),
        (3, (50, 50, 0) * 2),
    ):
        metadata = {**file.metadata, "gemma3.attention.sliding_window_pattern": said}
        changed = GgufFile(path=file.path, metadata=metadata, tensors=file.tensors)
        assert spec_from_gguf(changed).windows == windows
