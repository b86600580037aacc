"""Qwen2 and Qwen2.5 (q, k and v have biases), and Qwen3 (heads are normalised)."""

from dataclasses import replace

from ..facts import Facts
from ..model_spec import ModelSpec
from ..windows import layer_windows
from .family import LLAMA_GGUF_PARTS, QK_NORM_GGUF_PARTS, Family


def _windows(facts: Facts, spec: ModelSpec) -> ModelSpec:
    """The first `max_window_layers` layers see everything, if windows are used at all."""
    if not facts.boolean("use_sliding_window", False):
        return spec
    full = facts.integer("max_window_layers", 28)
    kinds = [number >= full for number in range(min(spec.layers, 2**16))]
    return replace(spec, windows=layer_windows(facts, spec, kinds))


def _qwen2_config(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return replace(_windows(facts, spec), qkv_bias=True)


def _qwen2_gguf(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return replace(spec, qkv_bias=True)


def _qwen3_config(facts: Facts, spec: ModelSpec) -> ModelSpec:
    bias = facts.boolean("attention_bias", False)
    return replace(_windows(facts, spec), qk_norm=True, qkv_bias=bias, out_bias=bias)


def _qwen3_gguf(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return replace(spec, qk_norm=True)


QWEN2 = Family(
    name="qwen2",
    classes=("Qwen2ForCausalLM",),
    model_types=("qwen2",),
    gguf="qwen2",
    defaults={"num_key_value_heads": 32},
    config_quirks=_qwen2_config,
    gguf_quirks=_qwen2_gguf,
)
QWEN3 = Family(
    name="qwen3",
    classes=("Qwen3ForCausalLM",),
    model_types=("qwen3",),
    gguf="qwen3",
    defaults={"num_key_value_heads": 32, "head_dim": 128},
    config_quirks=_qwen3_config,
    gguf_quirks=_qwen3_gguf,
    gguf_parts={**LLAMA_GGUF_PARTS, **QK_NORM_GGUF_PARTS},
)
