"""Qwen3's mixtures of experts (Yang et al. 2025): many small experts, eight of them active."""

from dataclasses import replace

from ..experts import Experts
from ..facts import Facts
from ..model_spec import ModelSpec
from .family import EXPERT_GGUF_PARTS, LLAMA_GGUF_PARTS, QK_NORM_GGUF_PARTS, Family, gguf_experts


def _config_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    facts.refuse("use_sliding_window", "false")
    bias = facts.boolean("attention_bias", False)
    step, dense = facts.integer("decoder_sparse_step", 1), facts.get("mlp_only_layers") or []
    if step < 1:
        raise facts.wrong("decoder_sparse_step", "at least 1")
    if not isinstance(dense, list) or not all(type(layer) is int for layer in dense):
        raise facts.wrong("mlp_only_layers", "a list of layers")
    plain = [n for n in range(min(spec.layers, 2**16)) if n in dense or (n + 1) % step]
    experts = Experts(
        count=facts.integer("num_experts", facts.integer("num_local_experts", 128)),
        active=facts.integer("num_experts_per_tok"),
        intermediate=facts.integer("moe_intermediate_size"),
        dense_layers=tuple(plain),
        normalised=facts.boolean("norm_topk_prob", False),
    )
    return replace(spec, qk_norm=True, qkv_bias=bias, out_bias=bias, experts=experts)


def _gguf_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return replace(spec, qk_norm=True, experts=gguf_experts(facts, spec))


QWEN3_MOE = Family(
    name="qwen3_moe",
    classes=("Qwen3MoeForCausalLM",),
    model_types=("qwen3_moe",),
    gguf="qwen3moe",
    defaults={
        "num_key_value_heads": 4,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    config_quirks=_config_quirks,
    gguf_quirks=_gguf_quirks,
    gguf_parts={**LLAMA_GGUF_PARTS, **QK_NORM_GGUF_PARTS, **EXPERT_GGUF_PARTS},
)
