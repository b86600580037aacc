"""What a family's GGUF file says: metadata keys, and its tensors by llama.cpp's names."""

import re

import gguf
import numpy as np
import numpy.typing as npt

from antiphon.checkpoint import (
    Experts,
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ModelSpec,
    Scoring,
    YarnScaling,
)
from antiphon.checkpoint.hf_config import Arrays, family_of, hf_tensors

_ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe"}


def gguf_architecture(spec: ModelSpec) -> str:
    """What `general.architecture` says."""
    return _ARCHITECTURES.get(spec.architecture, spec.architecture)


def gguf_tensors(spec: ModelSpec, tensors: Arrays) -> dict[str, npt.NDArray[np.float32]]:
    """The engine's tensors as llama.cpp's converter writes them: names, fused parts, order of rows.

    Names come from the `gguf` library's own table. Norms stay as they are: the converter adds what
    Hugging Face's folders lack.
    """
    plain = hf_tensors(spec, tensors)
    offset = np.float32(family_of(spec).norm_offset)
    found: dict[str, list[npt.NDArray[np.float32]]] = {}
    for name, stored in plain.items():
        array = stored + offset if name.endswith("norm.weight") else stored
        if gguf_architecture(spec) == "llama" and (".q_proj." in name or ".k_proj." in name):
            array = interleave(array, spec.heads if ".q_proj." in name else spec.kv_heads)
        found.setdefault(to_gguf_name(spec, name), []).append(array)
    return {
        name: np.stack(arrays) if "_exps." in name else arrays[0] for name, arrays in found.items()
    }


def interleave(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """llama.cpp's row order of q and k: in each head, the two halves row by row in turn."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def to_gguf_name(spec: ModelSpec, name: str) -> str:
    """GGUF's name of a tensor of a Hugging Face folder, from the `gguf` library's own table."""
    kind = gguf.MODEL_ARCH[gguf_architecture(spec).upper()]
    found = gguf.get_tensor_name_map(kind, spec.layers).get_name(
        _stacked(name), try_suffixes=(".weight", ".bias")
    )
    if found is None:
        raise ValueError(f"{name} is not a tensor of {spec.architecture}")
    return found


def _stacked(name: str) -> str:
    """The converter's name for what is one tensor over all experts, and for the correction."""
    name = name.replace(".e_score_correction_bias", ".e_score_correction.bias")
    return re.sub(r"\.experts\.[0-9]+\.", ".experts.", name)


def add_metadata(writer: gguf.GGUFWriter, spec: ModelSpec) -> None:
    """Sizes, RoPE and quirks; tensors of RoPE's factors too."""
    writer.add_context_length(spec.context_len)
    writer.add_embedding_length(spec.hidden)
    writer.add_block_count(spec.layers)
    writer.add_feed_forward_length(spec.intermediate)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.turning)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_layer_norm_rms_eps(spec.rms_norm_eps)
    writer.add_vocab_size(spec.vocab_size)
    if spec.windows:
        writer.add_sliding_window(max(spec.windows))
    if spec.experts is not None:
        _add_experts(writer, spec.experts)
    _add_rope_scaling(writer, spec)


def _add_experts(writer: gguf.GGUFWriter, experts: Experts) -> None:
    writer.add_expert_count(experts.count)
    writer.add_expert_used_count(experts.active)
    writer.add_expert_feed_forward_length(experts.intermediate)
    if experts.scoring is Scoring.SIGMOID:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_shared_count(experts.shared)
        writer.add_leading_dense_block_count(len(experts.dense_layers))
        writer.add_expert_weights_scale(experts.scale)
        writer.add_expert_weights_norm(experts.normalised)
        writer.add_expert_group_count(experts.groups)
        writer.add_expert_group_used_count(experts.active_groups)


def _add_rope_scaling(writer: gguf.GGUFWriter, spec: ModelSpec) -> None:
    match spec.rope_scaling:
        case LinearScaling(factor=factor):
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(factor)
        case YarnScaling() as scaling:
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(scaling.factor)
            writer.add_rope_scaling_orig_ctx_len(scaling.original_context_len)
        case LongRopeScaling() as scaling:
            writer.add_rope_scaling_orig_ctx_len(scaling.original_context_len)
            writer.add_rope_scaling_attn_factors(scaling.attention_factor)
            writer.add_tensor("rope_factors_long.weight", np.array(scaling.long, np.float32))
            writer.add_tensor("rope_factors_short.weight", np.array(scaling.short, np.float32))
        case FrequencyFactors(factors=factors):
            writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
        case Llama3Scaling():
            raise ValueError("a GGUF file holds Llama 3's scaling as frequency factors")
