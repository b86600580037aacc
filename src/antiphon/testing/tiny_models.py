"""Tiny random models on disk: the same weights as a Hugging Face folder or a GGUF file.

    spec, tensors = TINY_SPEC, random_tensors(TINY_SPEC, seed=1)
    write_hf_folder(tmp_path / "tiny", spec, tensors)
    write_gguf(tmp_path / "tiny.gguf", spec, tensors, storage=StorageType.Q4_1)

`transformers` loads the folder, so it can serve as the oracle. The tokenizer is byte-level BPE
with a few merges, the same in both formats.
"""

import json
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from antiphon.checkpoint import BLOCK_LAYOUT, ModelSpec, StorageType, expected_shapes
from antiphon.checkpoint.hf_config import Arrays, hf_config, hf_tensors

from .family_metadata import add_metadata, gguf_architecture, gguf_tensors
from .ggml_quants import quantize

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
    """Every tensor of `spec` by the engine's names: matrices around 0, norms around 1.

    Norms are multiples of 2⁻¹²: they stay the same when a format keeps them less 1.
    """
    chance = np.random.default_rng(seed)
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for name, shape in expected_shapes(spec):
        norm = name.endswith("norm.weight")
        drawn = chance.normal(1.0 if norm else 0.0, 0.1, shape)
        tensors[name] = (np.rint(drawn * 4096) / 4096 if norm else drawn).astype(np.float32)
    return tensors


def write_hf_folder(
    folder: Path,
    spec: ModelSpec,
    tensors: Arrays,
    *,
    storage: StorageType = StorageType.F32,
    shards: int = 1,
) -> Path:
    """Write config.json, the tokenizer and `shards` safetensors files; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", hf_config(spec))
    _write_tokenizer(folder)
    dtype = getattr(torch, {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[storage])
    values = {
        name: torch.tensor(array).to(dtype) for name, array in hf_tensors(spec, tensors).items()
    }
    if shards == 1:
        save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    for number in range(shards):
        shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(values.items())[number::shards])
        save_file(part, folder / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, shard)
    size = sum(value.nbytes for value in values.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)
    return folder


def write_gguf(
    path: Path,
    spec: ModelSpec,
    tensors: Arrays,
    *,
    storage: StorageType = StorageType.F32,
    parts: int = 1,
) -> Path:
    """Write a GGUF file as llama.cpp's converter does (q and k interleaved); returns `path`.

    Matrices are stored as `storage` (see `quantised`), all else as F32. Of several `parts` the
    path of the first is returned.
    """
    stored = gguf_tensors(spec, tensors)
    each = -(-len(stored) // parts) if parts > 1 else 0
    writer = gguf.GGUFWriter(path, gguf_architecture(spec), split_max_tensors=each)
    add_metadata(writer, spec)
    _add_tokenizer(writer, spec)
    for name, array in stored.items():
        fits = quantised(name, array, storage)
        kind = gguf.GGMLQuantizationType[storage if fits else StorageType.F32]
        writer.add_tensor(name, quantize(array, StorageType(kind.name)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if parts == 1 else path.with_name(f"{path.stem}-00001-of-{parts:05}.gguf")


def quantised(name: str, array: npt.NDArray[np.float32], storage: StorageType) -> bool:
    """Whether a GGUF file keeps a tensor as `storage`: no vector and no router, in whole blocks.

    `name`: GGUF's, or the engine's.
    """
    router = ".ffn_gate_inp." in name or name.endswith(".mlp.gate.weight")
    return array.ndim > 1 and array.shape[-1] % BLOCK_LAYOUT[storage][0] == 0 and not router


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
