"""A tiny model of every family, with each of its quirks, and with windows and contexts to leave."""

from collections.abc import Mapping
from dataclasses import replace
from math import log, sqrt

from antiphon.checkpoint import (
    Activation,
    Experts,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ModelSpec,
    Scoring,
    YarnScaling,
)

from .tiny_models import TINY_SPEC

_ORIGINAL = 64
_LLAMA3 = Llama3Scaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_len=_ORIGINAL
)
_YARN = YarnScaling(
    factor=4.0, original_context_len=_ORIGINAL, attention_factor=0.1 * log(4.0) + 1.0
)
_LONG = LongRopeScaling(
    short=(1.0, 1.05, 1.1, 1.2, 1.3, 1.5),
    long=(1.0, 1.5, 2.5, 4.0, 6.0, 9.0),
    original_context_len=_ORIGINAL,
    attention_factor=sqrt(1 + log(4.0) / log(_ORIGINAL)),
)
_QWEN2 = replace(TINY_SPEC, architecture="qwen2", qkv_bias=True, bos_token_id=None)
_QWEN3 = replace(TINY_SPEC, architecture="qwen3", head_dim=24, qk_norm=True, tied_embeddings=True)
_PHI3 = replace(
    TINY_SPEC, architecture="phi3", head_dim=16, rotary_dim=12, windows=(70, 70), kv_heads=6
)
_GEMMA3 = replace(
    TINY_SPEC,
    architecture="gemma3",
    layers=6,
    hidden=96,
    heads=4,
    kv_heads=1,
    head_dim=20,
    intermediate=64,
    rope_theta=1e6,
    rope_scaling=LinearScaling(factor=8.0),
    rms_norm_eps=1e-6,
    tied_embeddings=True,
    qk_norm=True,
    post_norms=True,
    activation=Activation.GELU_TANH,
    embedding_scale=sqrt(96),
    attention_scale=1 / sqrt(20),
    windows=(50, 50, 50, 50, 50, 0),
    window_rope_theta=10000.0,
)

_QWEN3_MOE = replace(
    _QWEN3,
    architecture="qwen3_moe",
    experts=Experts(count=10, active=3, intermediate=40),
)
_DOTS1 = replace(
    TINY_SPEC,
    architecture="dots1",
    layers=3,
    qk_norm=True,
    experts=Experts(
        count=8,
        active=3,
        intermediate=24,
        shared=2,
        dense_layers=(0,),
        scoring=Scoring.SIGMOID,
        scale=2.5,
        corrected=True,
        groups=4,
        active_groups=2,
    ),
)

FAMILY_SPECS: Mapping[str, ModelSpec] = {
    "llama": TINY_SPEC,
    "llama, llama3 RoPE": replace(TINY_SPEC, rope_scaling=_LLAMA3),
    "llama, linear RoPE": replace(TINY_SPEC, rope_scaling=LinearScaling(factor=4.0)),
    "mistral": replace(TINY_SPEC, architecture="mistral"),
    "mistral, window": replace(TINY_SPEC, architecture="mistral", windows=(40, 40)),
    "qwen2": _QWEN2,
    "qwen2, YaRN": replace(_QWEN2, rope_scaling=_YARN, tied_embeddings=True),
    "qwen3": _QWEN3,
    "phi3": _PHI3,
    "phi3, LongRoPE": replace(_PHI3, windows=(), rope_scaling=_LONG),
    "gemma3": _GEMMA3,
    "mixtral": replace(
        TINY_SPEC,
        architecture="mixtral",
        experts=Experts(count=4, active=2, intermediate=TINY_SPEC.intermediate),
    ),
    "qwen3_moe": _QWEN3_MOE,
    "dots1": _DOTS1,
}
"""Contexts of 256, windows of 40 to 70, RoPE stretched from 64: tests go past every border."""


def widened(spec: ModelSpec) -> ModelSpec:
    """The same model with rows of 256 elements: GGUF's K types take them whole."""
    scaled = spec.attention_scale is not None
    return replace(
        spec,
        hidden=256,
        heads=8,
        kv_heads=8 if spec.kv_heads == spec.heads else 2,
        head_dim=32,
        intermediate=256,
        embedding_scale=1.0 if spec.embedding_scale == 1 else sqrt(256),
        attention_scale=1 / sqrt(32) if scaled else None,
        experts=None if spec.experts is None else replace(spec.experts, intermediate=256),
    )
