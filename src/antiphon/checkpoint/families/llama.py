"""Llama (Touvron et al. 2023), and what is built like it: SmolLM2, Llama 3."""

from dataclasses import replace

from ..facts import Facts
from ..model_spec import ModelSpec
from ..windows import gguf_window
from .family import EXPERT_GGUF_PARTS, LLAMA_GGUF_PARTS, Family, gguf_experts


def _config_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    bias = facts.boolean("attention_bias", False)
    return replace(spec, qkv_bias=bias, out_bias=bias, mlp_bias=facts.boolean("mlp_bias", False))


def _gguf_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    """Mistral's files say `llama` too, and may have a window; so do Mixtral's."""
    return replace(gguf_window(facts, spec), experts=gguf_experts(facts, spec))


LLAMA = Family(
    name="llama",
    classes=("LlamaForCausalLM",),
    model_types=("llama",),
    gguf="llama",
    config_quirks=_config_quirks,
    gguf_quirks=_gguf_quirks,
    gguf_parts={**LLAMA_GGUF_PARTS, **EXPERT_GGUF_PARTS},
    gguf_interleaves=True,
)
