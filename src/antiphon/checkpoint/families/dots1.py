"""dots.llm1 (Huo et al. 2025): DeepSeek's shared and routed experts with Qwen3's attention."""

from dataclasses import replace

from ..experts import Experts, Scoring
from ..facts import Facts
from ..model_spec import ModelSpec
from ..windows import layer_windows
from .family import EXPERT_GGUF_PARTS, LLAMA_GGUF_PARTS, QK_NORM_GGUF_PARTS, Family, gguf_experts


def _config_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    bias = facts.boolean("attention_bias", False)
    full = facts.integer("max_window_layers", 62)
    sliding = [number >= full for number in range(min(spec.layers, 2**16))]
    first_sparse = facts.integer("first_k_dense_replace", 0)
    experts = Experts(
        count=facts.integer("n_routed_experts"),
        active=facts.integer("num_experts_per_tok"),
        intermediate=facts.integer("moe_intermediate_size"),
        shared=facts.integer("n_shared_experts"),
        dense_layers=tuple(range(min(first_sparse, spec.layers, 2**16))),
        scoring=Scoring.SIGMOID,
        normalised=facts.boolean("norm_topk_prob", False),
        scale=facts.number("routed_scaling_factor", 1.0),
        corrected=True,
        groups=facts.integer("n_group", 1),
        active_groups=facts.integer("topk_group", 1),
    )
    return replace(
        spec,
        qk_norm=True,
        qkv_bias=bias,
        out_bias=bias,
        windows=layer_windows(facts, spec, sliding),
        experts=experts,
    )


def _gguf_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return replace(spec, qk_norm=True, experts=gguf_experts(facts, spec))


DOTS1 = Family(
    name="dots1",
    classes=("Dots1ForCausalLM",),
    model_types=("dots1",),
    gguf="dots1",
    defaults={"num_key_value_heads": 32, "sliding_window": 4096, "moe_intermediate_size": 1408},
    config_quirks=_config_quirks,
    gguf_quirks=_gguf_quirks,
    parts={"mlp.gate.e_score_correction_bias": "mlp.correction.bias"},
    gguf_parts={**LLAMA_GGUF_PARTS, **QK_NORM_GGUF_PARTS, **EXPERT_GGUF_PARTS},
)
