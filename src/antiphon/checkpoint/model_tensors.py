"""Which tensors a model has, in which shapes, under the names that the engine knows.

The names are those of Llama in Hugging Face folders. What Llama lacks has a name of ours:
`self_attn.q_norm`, `self_attn.k_norm` (norms of heads), `self_attn.out_norm`, `mlp.out_norm`
(norms of what a block adds to the residual stream), `mlp.correction.bias` (of the choice of
experts). Shared experts are one MLP, as wide as all of them together.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from antiphon.errors import ModelFileError

from .experts import Experts
from .model_spec import ModelSpec
from .tensor_entry import TensorEntry

EMBEDDING = "model.embed_tokens.weight"
OUTPUT = "lm_head.weight"
FINAL_NORM = "model.norm.weight"

Shape = tuple[int, ...]


def expected_shapes(spec: ModelSpec) -> Iterator[tuple[str, Shape]]:
    """Every tensor that the forward pass of `spec` reads, with its shape as in PyTorch."""
    yield EMBEDDING, (spec.vocab_size, spec.hidden)
    for layer in range(spec.layers):
        for part, shape in layer_shapes(spec, layer):
            yield f"model.layers.{layer}.{part}", shape
    yield FINAL_NORM, (spec.hidden,)
    if not spec.tied_embeddings:
        yield OUTPUT, (spec.vocab_size, spec.hidden)


def layer_shapes(spec: ModelSpec, layer: int) -> Iterator[tuple[str, Shape]]:
    """The tensors of a layer, by what follows `model.layers.N.` in their names."""
    yield "input_layernorm.weight", (spec.hidden,)
    yield "post_attention_layernorm.weight", (spec.hidden,)
    if spec.qk_norm:
        yield "self_attn.q_norm.weight", (spec.head_dim,)
        yield "self_attn.k_norm.weight", (spec.head_dim,)
    if spec.post_norms:
        yield "self_attn.out_norm.weight", (spec.hidden,)
        yield "mlp.out_norm.weight", (spec.hidden,)
    if spec.experts is not None and spec.experts.sparse(layer):
        yield from _expert_shapes(spec.hidden, spec.experts)
        projections = _attention(spec)
    else:
        projections = (*_attention(spec), *_mlp("mlp", spec.intermediate, spec))
    for name, rows, columns, bias in projections:
        yield f"{name}.weight", (rows, columns)
        if bias:
            yield f"{name}.bias", (rows,)


def _expert_shapes(hidden: int, experts: Experts) -> Iterator[tuple[str, Shape]]:
    yield "mlp.gate.weight", (experts.count, hidden)
    if experts.corrected:
        yield "mlp.correction.bias", (experts.count,)
    wide = [(f"mlp.experts.{number}", experts.intermediate) for number in range(experts.count)]
    if experts.shared:
        wide.append(("mlp.shared_experts", experts.shared * experts.intermediate))
    for name, inner in wide:
        yield f"{name}.gate_proj.weight", (inner, hidden)
        yield f"{name}.up_proj.weight", (inner, hidden)
        yield f"{name}.down_proj.weight", (hidden, inner)


def _mlp(name: str, inner: int, spec: ModelSpec) -> Iterator[tuple[str, int, int, bool]]:
    yield f"{name}.gate_proj", inner, spec.hidden, spec.mlp_bias
    yield f"{name}.up_proj", inner, spec.hidden, spec.mlp_bias
    yield f"{name}.down_proj", spec.hidden, inner, spec.mlp_bias


def _attention(spec: ModelSpec) -> Iterator[tuple[str, int, int, bool]]:
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    yield "self_attn.q_proj", queries, spec.hidden, spec.qkv_bias
    yield "self_attn.k_proj", keys, spec.hidden, spec.qkv_bias
    yield "self_attn.v_proj", keys, spec.hidden, spec.qkv_bias
    yield "self_attn.o_proj", spec.hidden, queries, spec.out_bias


def check_tensors(
    path: Path,
    spec: ModelSpec,
    tensors: Mapping[str, TensorEntry],
    named: Callable[[str], str],
) -> None:
    """Raise `ModelFileError` unless `tensors` are exactly those of `spec`, in the right shapes.

    `named`: from the engine's name of a tensor to what the files would call it.
    """
    expected = 0
    for name, shape in expected_shapes(spec):
        entry = tensors.get(name)
        if entry is None:
            raise ModelFileError(path, "is missing", tensor=named(name))
        if entry.shape != shape:
            problem = f"has shape {list(entry.shape)}, but the model's config says {list(shape)}"
            raise ModelFileError(entry.path, problem, tensor=entry.source_name)
        expected += 1
    if len(tensors) != expected:
        known = {name for name, _ in expected_shapes(spec)}
        extra = min(name for name in tensors if name not in known)
        problem = f"is not part of a {spec.architecture} model of this config"
        raise ModelFileError(tensors[extra].path, problem, tensor=tensors[extra].source_name)
