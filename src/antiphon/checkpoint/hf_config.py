"""What a family's Hugging Face folder says: config.json, and its tensors by their own names."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .experts import Experts
from .families import FAMILIES, Family
from .model_spec import ModelSpec
from .rope_scaling import (
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeScaling,
    YarnScaling,
)

Arrays = Mapping[str, npt.NDArray[np.float32]]


def family_of(spec: ModelSpec) -> Family:
    """The family that `spec.architecture` names."""
    return next(family for family in FAMILIES if family.name == spec.architecture)


def hf_config(spec: ModelSpec) -> dict[str, Any]:
    """The config.json of `spec`. Raises `ValueError` for `FrequencyFactors`: it can't hold them."""
    family = family_of(spec)
    config = {
        "architectures": [family.classes[0]],
        "model_type": family.model_types[0],
        "num_hidden_layers": spec.layers,
        "hidden_size": spec.hidden,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.context_len,
        "rms_norm_eps": spec.rms_norm_eps,
        "rope_parameters": _rope(spec),
        "tie_word_embeddings": spec.tied_embeddings,
        "attention_bias": spec.out_bias,
        "mlp_bias": spec.mlp_bias,
        "eos_token_id": list(spec.eos_token_ids),
        "bos_token_id": spec.bos_token_id,
        "pad_token_id": 0,
    }
    return config | _QUIRKS[family.name](spec)


def hf_tensors(spec: ModelSpec, tensors: Arrays) -> dict[str, npt.NDArray[np.float32]]:
    """The engine's tensors as the family's folders hold them: their names, fused, norms less 1."""
    family = family_of(spec)
    parts: dict[str, list[npt.NDArray[np.float32]]] = {}
    for name, array in tensors.items():
        stored = array
        if name.endswith("norm.weight"):
            stored = array - np.float32(family.norm_offset)
        parts.setdefault(family.theirs(name), []).append(stored)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _rope(spec: ModelSpec) -> dict[str, Any]:
    rope = {"rope_theta": spec.rope_theta, **dict(_scaling(spec.rope_scaling))}
    if spec.rotary_dim is not None:
        rope["partial_rotary_factor"] = spec.rotary_dim / spec.head_dim
    if spec.window_rope_theta is None:
        return rope
    local = {"rope_type": "default", "rope_theta": spec.window_rope_theta}
    return {"full_attention": rope, "sliding_attention": local}


def _scaling(scaling: RopeScaling | None) -> Iterator[tuple[str, Any]]:
    match scaling:
        case None:
            yield "rope_type", "default"
        case LinearScaling(factor=factor):
            yield from {"rope_type": "linear", "factor": factor}.items()
        case Llama3Scaling():
            yield "rope_type", "llama3"
            yield "factor", scaling.factor
            yield "low_freq_factor", scaling.low_freq_factor
            yield "high_freq_factor", scaling.high_freq_factor
            yield "original_max_position_embeddings", scaling.original_context_len
        case YarnScaling():
            yield "rope_type", "yarn"
            yield "factor", scaling.factor
            yield "original_max_position_embeddings", scaling.original_context_len
            yield "attention_factor", scaling.attention_factor
            yield "beta_fast", scaling.beta_fast
            yield "beta_slow", scaling.beta_slow
            yield "truncate", scaling.truncate
        case LongRopeScaling():
            yield "rope_type", "longrope"
            yield "short_factor", list(scaling.short)
            yield "long_factor", list(scaling.long)
            yield "attention_factor", scaling.attention_factor
            yield "original_max_position_embeddings", scaling.original_context_len
        case FrequencyFactors():
            raise ValueError("a Hugging Face config can't hold frequency factors")


def _llama(spec: ModelSpec) -> dict[str, Any]:
    return {"hidden_act": "silu"}


def _one_window(spec: ModelSpec) -> dict[str, Any]:
    return {"hidden_act": "silu", "sliding_window": spec.windows[0] if spec.windows else None}


def _phi3(spec: ModelSpec) -> dict[str, Any]:
    original = getattr(spec.rope_scaling, "original_context_len", spec.context_len)
    return {**_one_window(spec), "original_max_position_embeddings": original}


def _qwen(spec: ModelSpec) -> dict[str, Any]:
    full = sum(window == 0 for window in spec.windows) if spec.windows else spec.layers
    return {
        "hidden_act": "silu",
        "use_sliding_window": bool(spec.windows),
        "sliding_window": max(spec.windows, default=0) or None,
        "max_window_layers": full,
    }


def _gemma3(spec: ModelSpec) -> dict[str, Any]:
    kinds = ["sliding_attention" if window else "full_attention" for window in spec.windows]
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": round(spec.score_scale**-2),
        "sliding_window": max(spec.windows),
        "layer_types": kinds,
    }


def _mixtral(spec: ModelSpec) -> dict[str, Any]:
    experts = _experts(spec)
    return {
        **_one_window(spec),
        "intermediate_size": experts.intermediate,
        "num_local_experts": experts.count,
        "num_experts_per_tok": experts.active,
    }


def _qwen3_moe(spec: ModelSpec) -> dict[str, Any]:
    experts = _experts(spec)
    return {
        "hidden_act": "silu",
        "num_experts": experts.count,
        "num_experts_per_tok": experts.active,
        "moe_intermediate_size": experts.intermediate,
        "norm_topk_prob": experts.normalised,
        "mlp_only_layers": list(experts.dense_layers),
    }


def _dots1(spec: ModelSpec) -> dict[str, Any]:
    experts = _experts(spec)
    return {
        "hidden_act": "silu",
        "sliding_window": None,
        "n_routed_experts": experts.count,
        "n_shared_experts": experts.shared,
        "num_experts_per_tok": experts.active,
        "moe_intermediate_size": experts.intermediate,
        "norm_topk_prob": experts.normalised,
        "routed_scaling_factor": experts.scale,
        "first_k_dense_replace": len(experts.dense_layers),
        "n_group": experts.groups,
        "topk_group": experts.active_groups,
    }


def _experts(spec: ModelSpec) -> Experts:
    assert spec.experts is not None
    return spec.experts


_QUIRKS = {
    "llama": _llama,
    "mistral": _one_window,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "phi3": _phi3,
    "gemma3": _gemma3,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "dots1": _dots1,
}
