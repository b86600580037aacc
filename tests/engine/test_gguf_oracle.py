"""Mixtures of experts in GGUF files, which `transformers` doesn't read: a second reader of them.

The `gguf` library's reader and dequantisation, llama.cpp's names and keys as they stand in its
converter, and `transformers` on what comes out: none of the project's own code for GGUF files.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from antiphon.checkpoint import StorageType, open_checkpoint
from antiphon.engine import load_llama
from antiphon.testing.family_oracle import distance, engine_logits, oracle_logits, random_tokens
from antiphon.testing.tiny_families import FAMILY_SPECS, widened
from antiphon.testing.tiny_models import random_tensors, write_gguf

Array = np.ndarray[Any, Any]

OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
PLAIN = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
}
MIXTRAL = {
    **PLAIN,
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
}
DOTS1 = {
    **PLAIN,
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}


def written_again(file: Path, folder: Path) -> Path:
    """A Hugging Face folder of the file's values, dequantised by the library."""
    reader = gguf.GGUFReader(file)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    parts = DOTS1 if facts["general.architecture"] == "dots1" else MIXTRAL
    config = dots1_config(facts) if parts is DOTS1 else mixtral_config(facts)
    tensors = {}
    for stored in reader.tensors:
        values = gguf.quants.dequantize(stored.data, stored.tensor_type).astype(np.float32)
        for name, array in named(stored.name, values, parts, config):
            tensors[name] = torch.from_numpy(np.ascontiguousarray(array))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def named(
    name: str, values: Array, parts: dict[str, str], config: dict[str, Any]
) -> Iterator[tuple[str, Array]]:
    """Hugging Face's names of a tensor; experts one by one."""
    if name in OUTER:
        yield OUTER[name], values
        return
    _, layer, part, kind = name.split(".")
    prefix = f"model.layers.{layer}."
    if part == "exp_probs_b":
        yield f"{prefix}mlp.gate.e_score_correction_bias", values
    elif part.endswith("_exps"):
        for number, expert in enumerate(values):
            yield f"{prefix}{parts[part].format(number)}.{kind}", expert
    else:
        if parts is MIXTRAL and part in ("attn_q", "attn_k"):
            key = "num_attention_heads" if part == "attn_q" else "num_key_value_heads"
            values = unpermuted(values, config[key])
        yield f"{prefix}{parts[part]}.{kind}", values


def unpermuted(rows: Array, heads: int) -> Array:
    """What llama.cpp's converter calls `permute`, undone."""
    halves = rows.reshape(heads, len(rows) // heads // 2, 2, -1)
    return halves.swapaxes(1, 2).reshape(rows.shape)


def common(facts: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        "num_hidden_layers": facts[f"{prefix}.block_count"],
        "hidden_size": facts[f"{prefix}.embedding_length"],
        "num_attention_heads": facts[f"{prefix}.attention.head_count"],
        "num_key_value_heads": facts[f"{prefix}.attention.head_count_kv"],
        "head_dim": facts[f"{prefix}.attention.key_length"],
        "intermediate_size": facts[f"{prefix}.feed_forward_length"],
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "max_position_embeddings": facts[f"{prefix}.context_length"],
        "rms_norm_eps": facts[f"{prefix}.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": facts[f"{prefix}.rope.freq_base"],
        },
        "num_experts_per_tok": facts[f"{prefix}.expert_used_count"],
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "sliding_window": None,
    }


def mixtral_config(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        **common(facts, "llama"),
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": facts["llama.expert_count"],
    }


def dots1_config(facts: dict[str, Any]) -> dict[str, Any]:
    assert facts["dots1.expert_gating_func"] == gguf.ExpertGatingFuncType.SIGMOID
    return {
        **common(facts, "dots1"),
        "architectures": ["Dots1ForCausalLM"],
        "model_type": "dots1",
        "n_routed_experts": facts["dots1.expert_count"],
        "n_shared_experts": facts["dots1.expert_shared_count"],
        "moe_intermediate_size": facts["dots1.expert_feed_forward_length"],
        "first_k_dense_replace": facts["dots1.leading_dense_block_count"],
        "routed_scaling_factor": facts["dots1.expert_weights_scale"],
        "norm_topk_prob": facts["dots1.expert_weights_norm"],
        "n_group": facts["dots1.expert_group_count"],
        "topk_group": facts["dots1.expert_group_used_count"],
    }


@pytest.mark.parametrize("family", ["mixtral", "dots1"])
@pytest.mark.parametrize("storage", ["F32", "Q8_0", "Q4_K", "Q6_K"])
def test_another_reader_of_the_file_gets_the_same_logits(
    family: str, storage: str, tmp_path: Path
) -> None:
    spec = widened(FAMILY_SPECS[family])
    file = write_gguf(
        tmp_path / "a.gguf", spec, random_tensors(spec, seed=4), storage=StorageType(storage)
    )
    kinds = {tensor.tensor_type.name for tensor in gguf.GGUFReader(file).tensors}
    assert kinds == {"F32", storage}
    tokens = random_tokens(spec)[:128]
    expected = oracle_logits(written_again(file, tmp_path / "again"), tokens)
    model = load_llama(open_checkpoint(file), dtype="fp32", cache_dir=None)
    found = distance(engine_logits(model, tokens), expected)
    assert found.error < 1e-4
    assert found.agreement == 1
    assert found.spread > 0.5
