"""Which tensors a Llama-family model has, in which shapes, under Hugging Face and GGUF names."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from antiphon.errors import ModelFileError

from .model_spec import ModelSpec
from .tensor_entry import TensorEntry

EMBEDDING = "model.embed_tokens.weight"
OUTPUT = "lm_head.weight"

_GGUF_OUTER = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": "model.norm.weight",
    "output.weight": OUTPUT,
}
_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def from_gguf_name(name: str) -> str | None:
    """The Hugging Face name of GGUF tensor `name`, or None if Llama has no such tensor."""
    if name in _GGUF_OUTER:
        return _GGUF_OUTER[name]
    match name.split("."):
        case ["blk", layer, part, "weight" | "bias" as kind] if part in _GGUF_LAYER:
            if layer.isascii() and layer.isdecimal():
                return f"model.layers.{layer}.{_GGUF_LAYER[part]}.{kind}"
    return None


def expected_shapes(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor that the forward pass of `spec` reads, with its shape as in PyTorch."""
    yield EMBEDDING, (spec.vocab_size, spec.hidden)
    for layer in range(spec.layers):
        for part, shape in _layer_shapes(spec):
            yield f"model.layers.{layer}.{part}", shape
    yield "model.norm.weight", (spec.hidden,)
    if not spec.tied_embeddings:
        yield OUTPUT, (spec.vocab_size, spec.hidden)


def _layer_shapes(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    projections = (
        ("self_attn.q_proj", queries, spec.hidden, spec.attention_bias),
        ("self_attn.k_proj", keys, spec.hidden, spec.attention_bias),
        ("self_attn.v_proj", keys, spec.hidden, spec.attention_bias),
        ("self_attn.o_proj", spec.hidden, queries, spec.attention_bias),
        ("mlp.gate_proj", spec.intermediate, spec.hidden, spec.mlp_bias),
        ("mlp.up_proj", spec.intermediate, spec.hidden, spec.mlp_bias),
        ("mlp.down_proj", spec.hidden, spec.intermediate, spec.mlp_bias),
    )
    yield "input_layernorm.weight", (spec.hidden,)
    yield "post_attention_layernorm.weight", (spec.hidden,)
    for name, rows, columns, bias in projections:
        yield f"{name}.weight", (rows, columns)
        if bias:
            yield f"{name}.bias", (rows,)


def check_tensors(path: Path, spec: ModelSpec, tensors: Mapping[str, TensorEntry]) -> None:
    """Raise `ModelFileError` unless `tensors` are exactly those of `spec`, in the right shapes."""
    expected = 0
    for name, shape in expected_shapes(spec):
        entry = tensors.get(name)
        if entry is None:
            raise ModelFileError(path, "is missing", tensor=name)
        if entry.shape != shape:
            problem = f"has shape {list(entry.shape)}, but the model's config says {list(shape)}"
            raise ModelFileError(entry.path, problem, tensor=entry.source_name)
        expected += 1
    if len(tensors) != expected:
        known = {name for name, _ in expected_shapes(spec)}
        extra = min(name for name in tensors if name not in known)
        problem = "is not part of a plain Llama model of this config"
        raise ModelFileError(tensors[extra].path, problem, tensor=tensors[extra].source_name)
