"""Phi-3 and Phi-4 (Abdin et al. 2024): fused projections, RoPE on a part of a head, LongRoPE."""

from ..facts import Facts
from ..model_spec import ModelSpec
from ..windows import config_window, gguf_window
from .family import LLAMA_GGUF_PARTS, Family

_QKV, _GATE_UP = "self_attn.qkv_proj", "mlp.gate_up_proj"


def _config_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return config_window(facts, spec)


def _gguf_quirks(facts: Facts, spec: ModelSpec) -> ModelSpec:
    return gguf_window(facts, spec)


PHI3 = Family(
    name="phi3",
    classes=("Phi3ForCausalLM",),
    model_types=("phi3",),
    gguf="phi3",
    defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    partial_rope=True,
    config_quirks=_config_quirks,
    gguf_quirks=_gguf_quirks,
    gguf_parts={**LLAMA_GGUF_PARTS, "attn_qkv": _QKV, "ffn_up": _GATE_UP},
    fused={
        _QKV: ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        _GATE_UP: ("mlp.gate_proj", "mlp.up_proj"),
    },
)
