"""Gemma 3 (Kamath et al. 2025): windows in five layers of six, norms around every block."""

from dataclasses import replace
from math import sqrt

import numpy as np

from ..facts import Facts
from ..model_spec import Activation, ModelSpec
from ..windows import gguf_window_number, layer_windows
from .family import LLAMA_GGUF_PARTS, QK_NORM_GGUF_PARTS, Family

_PATTERN = 6
"""Every sixth layer sees everything."""
_LOCAL_THETA = 10000.0
_LAYERS_27B = 62
"""llama.cpp knows the 27B model, whose heads are scaled by hidden / heads, by its depth."""


def _common(spec: ModelSpec) -> ModelSpec:
    return replace(
        spec,
        qk_norm=True,
        post_norms=True,
        activation=Activation.GELU_TANH,
        embedding_scale=sqrt(max(spec.hidden, 0)),
    )


def _sliding(spec: ModelSpec, pattern: int) -> list[bool]:
    return [(number + 1) % pattern != 0 for number in range(min(spec.layers, 2**16))]


def _config_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        facts.refuse(key, "null: soft-capping is not supported")
    facts.refuse("use_bidirectional_attention", "false")
    facts.integer("sliding_window")
    bias = facts.boolean("attention_bias", False)
    pattern = facts.integer("sliding_window_pattern", _PATTERN)
    if pattern < 1:
        raise facts.wrong("sliding_window_pattern", "at least 1")
    scale = facts.number("query_pre_attn_scalar", 256)
    if not scale > 0:
        raise facts.wrong("query_pre_attn_scalar", "a positive number")
    local = facts.inner("rope_parameters").inner("sliding_attention")
    return replace(
        _common(spec),
        qkv_bias=bias,
        out_bias=bias,
        attention_scale=1 / sqrt(scale),
        windows=layer_windows(facts, spec, _sliding(spec, pattern)),
        window_rope_theta=local.number(
            "rope_theta", facts.number("rope_local_base_freq", _LOCAL_THETA)
        ),
    )


def _gguf_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    large = spec.layers == _LAYERS_27B and spec.heads > 0
    scalar = spec.hidden / spec.heads if large else spec.head_dim
    usual = 1 / sqrt(scalar) if scalar > 0 else 1.0
    window = gguf_window_number(facts)
    if window < 1:
        raise facts.wrong("attention.sliding_window", "at least 1")
    return replace(
        _common(spec),
        attention_scale=facts.number("attention.scale", usual),
        windows=tuple(window if slides else 0 for slides in _gguf_sliding(facts, spec)),
        window_rope_theta=facts.number("rope.freq_base_swa", _LOCAL_THETA),
    )


def _gguf_sliding(facts: Facts, spec: ModelSpec) -> list[bool]:
    """Which layers slide: a list in some files, a number in others, usually not said."""
    key = "attention.sliding_window_pattern"
    said = facts.get(key)
    if isinstance(said, np.ndarray):
        if len(said) != spec.layers:
            raise facts.wrong(key, f"a list of {spec.layers}, one for each layer")
        return [bool(slides) for slides in said.tolist()]
    pattern = facts.integer(key, _PATTERN)
    if pattern < 1:
        raise facts.wrong(key, "at least 1")
    return _sliding(spec, pattern)


GEMMA3 = Family(
    name="gemma3",
    classes=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    model_types=("gemma3_text", "gemma3"),
    gguf="gemma3",
    defaults={
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "rope_theta": 1e6,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
        "eos_token_id": 1,
        "bos_token_id": 2,
    },
    activation_key="hidden_activation",
    text_config="text_config",
    text_prefixes=("language_model.", "model.language_model."),
    other_prefixes=(
        "vision_tower.",
        "multi_modal_projector.",
        "model.vision_tower.",
        "model.multi_modal_projector.",
    ),
    config_quirks=_config_quirks,
    gguf_quirks=_gguf_quirks,
    parts={
        "post_attention_layernorm": "self_attn.out_norm",
        "pre_feedforward_layernorm": "post_attention_layernorm",
        "post_feedforward_layernorm": "mlp.out_norm",
    },
    gguf_parts={
        **LLAMA_GGUF_PARTS,
        **QK_NORM_GGUF_PARTS,
        "post_attention_norm": "self_attn.out_norm",
        "post_ffw_norm": "mlp.out_norm",
    },
    norm_offset=1.0,
)
