"""Models in GGUF files: metadata keys → `ModelSpec`, tensors under the engine's names."""

import re
from dataclasses import replace
from pathlib import Path

from antiphon.errors import ModelFileError

from .facts import Facts
from .families import FAMILIES, Family
from .gguf_file import GgufFile, GgufTensor
from .gguf_rope import ROPE_TENSORS, rope_scaling_of
from .model_spec import ModelSpec
from .model_tensors import EMBEDDING, FINAL_NORM, OUTPUT, check_tensors, layer_shapes
from .tensor_entry import TensorEntry

_OUTER = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": OUTPUT,
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def spec_from_gguf(file: GgufFile) -> ModelSpec:
    """The hyper-parameters in the metadata; what this engine would compute wrongly is refused."""
    family = _family(file)
    facts = Facts(file.path, file.metadata, f"{family.gguf}.")
    _refuse_variants(file, facts)
    return family.gguf_quirks(facts, _plain_spec(file, facts, family))


def _plain_spec(file: GgufFile, facts: Facts, family: Family) -> ModelSpec:
    """What is said alike in every family's metadata."""
    heads, hidden = facts.integer("attention.head_count"), facts.integer("embedding_length")
    head_dim = facts.integer("attention.key_length", hidden // heads if heads > 0 else 0)
    if facts.integer("attention.value_length", head_dim) != head_dim:
        raise facts.wrong("attention.value_length", f"{head_dim}, the size of an attention head")
    turning = facts.integer("rope.dimension_count", head_dim)
    if turning != head_dim and not family.partial_rope:
        raise facts.wrong("rope.dimension_count", f"{head_dim}, the size of an attention head")
    return ModelSpec(
        architecture=family.name,
        layers=facts.integer("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=facts.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=facts.integer("feed_forward_length"),
        vocab_size=_vocab_size(file, facts),
        context_len=facts.integer("context_length"),
        rope_theta=facts.number("rope.freq_base", 10000.0),
        rope_scaling=rope_scaling_of(file, facts),
        rotary_dim=None if turning == head_dim else turning,
        rms_norm_eps=facts.number("attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        out_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        eos_token_ids=_eos_token_ids(file),
        bos_token_id=_bos_token_id(file),
    )


def entries_from_gguf(file: GgufFile, spec: ModelSpec) -> dict[str, TensorEntry]:
    """The file's tensors by the engine's names: exactly those that `spec` needs, or an error."""
    family = _family(file)
    entries: dict[str, TensorEntry] = {}
    for tensor in file.tensors.values():
        if tensor.name in ROPE_TENSORS:
            continue
        name = from_gguf_name(tensor.name, family)
        if name is None:
            problem = f"is not part of a {family.name} model"
            raise ModelFileError(file.path, problem, tensor=tensor.name)
        entries[name] = _entry(file.path, name, tensor)
    entries = family.split(entries, dict(layer_shapes(spec, 0)))
    check_tensors(file.path, spec, entries, lambda name: _gguf_name(name, family))
    if not family.gguf_interleaves:
        return entries
    return {name: _interleaved(entry, spec) for name, entry in entries.items()}


def from_gguf_name(name: str, family: Family) -> str | None:
    """The engine's name of GGUF tensor `name`, or None if the family has no such tensor."""
    if name in _OUTER:
        return _OUTER[name]
    match name.split("."):
        case ["blk", layer, part, "weight" | "bias" as kind] if part in family.gguf_parts:
            if layer.isascii() and layer.isdecimal():
                return f"model.layers.{layer}.{family.gguf_parts[part]}.{kind}"
    return None


def _gguf_name(name: str, family: Family) -> str:
    """What a file of the family calls the tensor that holds the engine's `name`."""
    match name.split(".", 3):
        case ["model", "layers", layer, rest]:
            part, _, kind = re.sub(r"\.experts\.[0-9]+\.", ".experts.", rest).rpartition(".")
            back = {ours: theirs for theirs, ours in family.gguf_parts.items()}
            return f"blk.{layer}.{back[family.holder(part)]}.{kind}"
    return next(theirs for theirs, ours in _OUTER.items() if ours == name)


def _family(file: GgufFile) -> Family:
    architecture = Facts(file.path, file.metadata).string("general.architecture")
    for family in FAMILIES:
        if family.gguf == architecture:
            return family
    supported = ", ".join(repr(family.gguf) for family in FAMILIES if family.gguf)
    problem = f"architecture {architecture!r} is not supported; supported: {supported}"
    raise ModelFileError(file.path, problem)


def _refuse_variants(file: GgufFile, facts: Facts) -> None:
    if Facts(file.path, file.metadata).integer("split.count", 1) > 1:
        problem = "one part of a split model; join the parts with `llama-gguf-split --merge`"
        raise ModelFileError(facts.path, problem)


def _vocab_size(file: GgufFile, facts: Facts) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError(file.path, "is missing", tensor="token_embd.weight")
    rows = embedding.shape[0]
    if facts.integer("vocab_size", rows) != rows:
        raise facts.wrong("vocab_size", f"{rows}, the rows of token_embd.weight")
    return rows


def _eos_token_ids(file: GgufFile) -> tuple[int, ...]:
    facts = Facts(file.path, file.metadata, "tokenizer.ggml.")
    return tuple(
        dict.fromkeys(facts.integer(key) for key in _END_KEYS if facts.get(key) is not None)
    )


def _bos_token_id(file: GgufFile) -> int | None:
    facts = Facts(file.path, file.metadata, "tokenizer.ggml.")
    return None if facts.get("bos_token_id") is None else facts.integer("bos_token_id")


def _entry(path: Path, name: str, tensor: GgufTensor) -> TensorEntry:
    return TensorEntry(
        name=name,
        source_name=tensor.name,
        path=path,
        shape=tensor.shape,
        storage=tensor.storage,
        raw=tensor.raw,
    )


def _interleaved(entry: TensorEntry, spec: ModelSpec) -> TensorEntry:
    if ".q_proj." in entry.name:
        return replace(entry, interleaved_heads=spec.heads)
    if ".k_proj." in entry.name:
        return replace(entry, interleaved_heads=spec.kv_heads)
    return entry
