"""Llama-family models in GGUF files: metadata keys → `ModelSpec`, tensors under their HF names."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from antiphon.errors import ModelFileError

from .facts import Facts
from .gguf_file import GgufFile, GgufTensor
from .llama_tensors import from_gguf_name
from .model_spec import FrequencyFactors, LinearScaling, ModelSpec, RopeScaling
from .tensor_entry import StorageType, TensorEntry
from .tokenizer_source import GgufTokenizer

_ROPE_FACTORS = "rope_freqs.weight"
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_PRE_WITH_BOS = ("llama3", "llama-v3", "llama-bpe")


def spec_from_gguf(file: GgufFile) -> ModelSpec:
    """The hyper-parameters in the metadata; what this engine would compute wrongly is refused."""
    facts = Facts(file.path, file.metadata)
    architecture = facts.string("general.architecture")
    if architecture != "llama":
        problem = f"architecture {architecture!r} is not supported; supported: 'llama'"
        raise ModelFileError(file.path, problem)
    _refuse_variants(facts)
    heads, hidden = facts.integer("llama.attention.head_count"), _hidden(facts)
    head_dim = facts.integer("llama.attention.key_length", hidden // heads if heads > 0 else 0)
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if facts.integer(key, head_dim) != head_dim:
            raise facts.wrong(key, f"{head_dim}, the size of an attention head")
    return ModelSpec(
        architecture="llama",
        layers=facts.integer("llama.block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=facts.integer("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=facts.integer("llama.feed_forward_length"),
        vocab_size=_vocab_size(file, facts),
        context_len=facts.integer("llama.context_length"),
        rope_theta=facts.number("llama.rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(file, facts),
        rms_norm_eps=facts.number("llama.attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        eos_token_ids=_eos_token_ids(facts),
        bos_token_id=_bos_token_id(facts),
    )


def entries_from_gguf(file: GgufFile, spec: ModelSpec) -> dict[str, TensorEntry]:
    """The file's tensors by Hugging Face name; one that Llama doesn't have is an error."""
    entries: dict[str, TensorEntry] = {}
    for tensor in file.tensors.values():
        if tensor.name == _ROPE_FACTORS:
            continue
        name = from_gguf_name(tensor.name)
        if name is None:
            raise ModelFileError(file.path, "is not part of a Llama model", tensor=tensor.name)
        entries[name] = _entry(file.path, name, tensor, spec)
    return entries


def tokenizer_from_gguf(file: GgufFile, spec: ModelSpec) -> GgufTokenizer:
    """The tokenizer in the metadata; its vocabulary must be as large as the embedding matrix."""
    facts = Facts(file.path, file.metadata)
    model, pre = facts.string("tokenizer.ggml.model"), facts.string("tokenizer.ggml.pre", "default")
    tokens = _strings(facts, "tokenizer.ggml.tokens")
    scores = _numbers(facts, "tokenizer.ggml.scores", len(tokens))
    types = _numbers(facts, "tokenizer.ggml.token_type", len(tokens))
    if len(tokens) != spec.vocab_size:
        problem = f"{len(tokens)} tokens, but the embedding matrix has {spec.vocab_size} rows"
        raise ModelFileError(file.path, f"tokenizer.ggml.tokens: {problem}")
    template = facts.get("tokenizer.chat_template")
    adds = facts.boolean("tokenizer.ggml.add_bos_token", model == "llama" or pre in _PRE_WITH_BOS)
    return GgufTokenizer(
        model=model,
        pre=pre,
        tokens=tokens,
        merges=_strings(facts, "tokenizer.ggml.merges") if model == "gpt2" else (),
        scores=tuple(float(score) for score in scores),
        token_types=tuple(int(kind) for kind in types),
        chat_template=None if template is None else facts.string("tokenizer.chat_template"),
        eos_token_ids=spec.eos_token_ids,
        bos_token_id=spec.bos_token_id,
        add_bos=adds and spec.bos_token_id is not None,
    )


def _refuse_variants(facts: Facts) -> None:
    if facts.integer("split.count", 1) > 1:
        problem = "one part of a split model; join the parts with `llama-gguf-split --merge`"
        raise ModelFileError(facts.path, problem)
    if facts.integer("llama.expert_count", 0):
        raise ModelFileError(facts.path, "mixture-of-experts models are not supported yet")
    context = facts.integer("llama.context_length")
    if 0 < facts.integer("llama.attention.sliding_window", 0) < context:
        raise ModelFileError(facts.path, "sliding-window attention is not supported yet")


def _hidden(facts: Facts) -> int:
    return facts.integer("llama.embedding_length")


def _vocab_size(file: GgufFile, facts: Facts) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError(file.path, "is missing", tensor="token_embd.weight")
    rows = embedding.shape[0]
    if facts.integer("llama.vocab_size", rows) != rows:
        raise facts.wrong("llama.vocab_size", f"{rows}, the rows of token_embd.weight")
    return rows


def _rope_scaling(file: GgufFile, facts: Facts) -> RopeScaling | None:
    factors = file.tensors.get(_ROPE_FACTORS)
    kind = facts.string("llama.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ModelFileError(file.path, f"RoPE scaling {kind!r} is not supported")
    if factors is not None and kind == "none":
        if factors.storage is not StorageType.F32:
            raise ModelFileError(file.path, "is not stored as F32", tensor=_ROPE_FACTORS)
        if len(factors.raw) > 64 * 1024:
            raise ModelFileError(file.path, "has too many elements", tensor=_ROPE_FACTORS)
        return FrequencyFactors(factors=tuple(factors.raw.view("<f4").tolist()))
    if factors is not None:
        raise ModelFileError(
            file.path, f"{kind} RoPE scaling and {_ROPE_FACTORS} exclude each other"
        )
    if kind == "linear":
        return LinearScaling(factor=facts.number("llama.rope.scaling.factor"))
    return None


def _eos_token_ids(facts: Facts) -> tuple[int, ...]:
    keys = [f"tokenizer.ggml.{key}" for key in _END_KEYS]
    return tuple(dict.fromkeys(facts.integer(key) for key in keys if facts.get(key) is not None))


def _bos_token_id(facts: Facts) -> int | None:
    key = "tokenizer.ggml.bos_token_id"
    return None if facts.get(key) is None else facts.integer(key)


def _entry(path: Path, name: str, tensor: GgufTensor, spec: ModelSpec) -> TensorEntry:
    entry = TensorEntry(
        name=name,
        source_name=tensor.name,
        path=path,
        shape=tensor.shape,
        storage=tensor.storage,
        raw=tensor.raw,
    )
    if ".q_proj." in name:
        return replace(entry, interleaved_heads=spec.heads)
    if ".k_proj." in name:
        return replace(entry, interleaved_heads=spec.kv_heads)
    return entry


def _strings(facts: Facts, key: str) -> tuple[str, ...]:
    value = facts.get(key)
    if not isinstance(value, tuple):
        raise facts.wrong(key, "a list of strings")
    return value


def _numbers(facts: Facts, key: str, count: int) -> list[float]:
    value = facts.get(key)
    if value is None:
        return []
    if not isinstance(value, np.ndarray) or len(value) != count:
        raise facts.wrong(key, f"a list of {count} numbers, one for each token")
    return value.tolist()
