"""Tiny random Llama models on disk: the same weights as a Hugging Face folder or a GGUF file.

    spec, tensors = TINY_SPEC, random_tensors(TINY_SPEC, seed=1)
    write_hf_folder(tmp_path / "tiny", spec, tensors)
    write_gguf(tmp_path / "tiny.gguf", spec, tensors, storage=StorageType.Q4_1)

`transformers` loads the folder, so it can serve as the oracle. The tokenizer is byte-level BPE
with a few merges, the same in both formats.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from antiphon.checkpoint import (
    BLOCK_LAYOUT,
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    StorageType,
    expected_shapes,
)

Arrays = Mapping[str, npt.NDArray[np.float32]]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MERGES = ("Ġ t", "h e", "Ġt he", "i n", "Ġ a", "o n", "r e", "Ġa n", "e r", "Ġan d", "in g", "o u")
_VOCABULARY = (
    *SPECIAL_TOKENS,
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in _MERGES),
)

TINY_SPEC = ModelSpec(
    architecture="llama",
    layers=2,
    hidden=96,
    heads=6,
    kv_heads=2,
    head_dim=10,
    intermediate=88,
    vocab_size=len(_VOCABULARY),
    context_len=256,
    rope_theta=10000.0,
    rope_scaling=None,
    rms_norm_eps=1e-5,
    tied_embeddings=False,
    eos_token_ids=(2,),
    bos_token_id=1,
)
"""Grouped-query attention, and sizes that are no multiples of anything convenient."""


def random_tensors(spec: ModelSpec, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Every tensor of `spec`, drawn from `seed`: matrices around 0, norms around 1."""
    chance = np.random.default_rng(seed)
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for name, shape in expected_shapes(spec):
        mean = 1.0 if name.endswith("norm.weight") else 0.0
        tensors[name] = chance.normal(mean, 0.1, shape).astype(np.float32)
    return tensors


def write_hf_folder(
    folder: Path,
    spec: ModelSpec,
    tensors: Arrays,
    *,
    storage: StorageType = StorageType.F32,
    shards: int = 1,
    architecture: str = "LlamaForCausalLM",
) -> Path:
    """Write config.json, the tokenizer and `shards` safetensors files; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", hf_config(spec, architecture))
    _write_tokenizer(folder)
    dtype = getattr(torch, {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[storage])
    values = {name: torch.tensor(array).to(dtype) for name, array in tensors.items()}
    if shards == 1:
        save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    for number in range(shards):
        shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(values.items())[number::shards])
        save_file(part, folder / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, shard)
    _write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})
    return folder


def hf_config(spec: ModelSpec, architecture: str = "LlamaForCausalLM") -> dict[str, Any]:
    """The config.json of `spec`."""
    rope: dict[str, Any] = {"rope_theta": spec.rope_theta, "rope_type": "default"}
    match spec.rope_scaling:
        case LinearScaling(factor=factor):
            rope |= {"rope_type": "linear", "factor": factor}
        case Llama3Scaling() as scaling:
            rope |= {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_context_len,
            }
        case FrequencyFactors():
            raise ValueError("a Hugging Face config can't hold frequency factors")
    return {
        "architectures": [architecture],
        "model_type": architecture.removesuffix("ForCausalLM").lower(),
        "hidden_act": "silu",
        "num_hidden_layers": spec.layers,
        "hidden_size": spec.hidden,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.context_len,
        "rms_norm_eps": spec.rms_norm_eps,
        "rope_parameters": rope,
        "tie_word_embeddings": spec.tied_embeddings,
        "attention_bias": spec.attention_bias,
        "mlp_bias": spec.mlp_bias,
        "eos_token_id": list(spec.eos_token_ids),
        "bos_token_id": spec.bos_token_id,
    }


def write_gguf(
    path: Path, spec: ModelSpec, tensors: Arrays, *, storage: StorageType = StorageType.F32
) -> Path:
    """Write a GGUF file as llama.cpp's converter does (q and k interleaved); returns `path`.

    Matrices are stored as `storage` where their rows fill whole blocks, all else as F32.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(spec.context_len)
    writer.add_embedding_length(spec.hidden)
    writer.add_block_count(spec.layers)
    writer.add_feed_forward_length(spec.intermediate)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_layer_norm_rms_eps(spec.rms_norm_eps)
    writer.add_vocab_size(spec.vocab_size)
    _add_rope_scaling(writer, spec)
    _add_tokenizer(writer, spec)
    for name, array in tensors.items():
        _add_tensor(writer, spec, name, array, storage)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def interleave(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """llama.cpp's row order of q and k: in each head, the two halves row by row in turn."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def _add_rope_scaling(writer: gguf.GGUFWriter, spec: ModelSpec) -> None:
    match spec.rope_scaling:
        case LinearScaling(factor=factor):
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(factor)
        case FrequencyFactors(factors=factors):
            writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
        case Llama3Scaling():
            raise ValueError("a GGUF file holds Llama 3's scaling as frequency factors")


def _add_tokenizer(writer: gguf.GGUFWriter, spec: ModelSpec) -> None:
    kinds = [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS)
    kinds += [gguf.TokenType.NORMAL] * (len(_VOCABULARY) - len(SPECIAL_TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(_VOCABULARY))
    writer.add_token_types(kinds)
    writer.add_token_merges(list(_MERGES))
    for token in spec.eos_token_ids[:1]:
        writer.add_eos_token_id(token)
    if spec.bos_token_id is not None:
        writer.add_bos_token_id(spec.bos_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_tensor(
    writer: gguf.GGUFWriter,
    spec: ModelSpec,
    name: str,
    array: npt.NDArray[np.float32],
    storage: StorageType,
) -> None:
    if ".q_proj." in name or ".k_proj." in name:
        array = interleave(array, spec.heads if ".q_proj." in name else spec.kv_heads)
    fits = array.ndim == 2 and array.shape[1] % BLOCK_LAYOUT[storage][0] == 0
    kind = gguf.GGMLQuantizationType[storage if fits else StorageType.F32]
    writer.add_tensor(to_gguf_name(spec, name), gguf.quants.quantize(array, kind), raw_dtype=kind)


def to_gguf_name(spec: ModelSpec, name: str) -> str:
    """GGUF's name of a Llama tensor, from the `gguf` library's own table."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, spec.layers)
    found = table.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        raise ValueError(f"{name} is not a Llama tensor")
    return found


def _write_tokenizer(folder: Path) -> None:
    merges = [(left, right) for left, right in (merge.split(" ") for merge in _MERGES)]
    vocabulary = {token: number for number, token in enumerate(_VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[1],
        "eos_token": SPECIAL_TOKENS[2],
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
