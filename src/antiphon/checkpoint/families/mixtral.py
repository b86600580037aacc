"""Mixtral (Jiang et al. 2024): Mistral with eight experts in every layer."""

from dataclasses import replace

from ..experts import Experts
from ..facts import Facts
from ..model_spec import ModelSpec
from ..windows import config_window
from .family import Family


def _config_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    experts = Experts(
        count=facts.integer("num_local_experts"),
        active=facts.integer("num_experts_per_tok"),
        intermediate=spec.intermediate,
    )
    return replace(config_window(facts, spec), experts=experts)


MIXTRAL = Family(
    name="mixtral",
    classes=("MixtralForCausalLM",),
    model_types=("mixtral",),
    gguf=None,  # Mixtral's files say `llama`
    defaults={"num_local_experts": 8, "num_experts_per_tok": 2, "rope_theta": 1e6},
    config_quirks=_config_quirks,
    parts={
        "block_sparse_moe.gate": "mlp.gate",
        "block_sparse_moe.experts.*.w1": "mlp.experts.*.gate_proj",
        "block_sparse_moe.experts.*.w2": "mlp.experts.*.down_proj",
        "block_sparse_moe.experts.*.w3": "mlp.experts.*.up_proj",
    },
)
