"""A Llama model's weights as packed int8 matrices: made from a checkpoint, kept on disk, mapped.

checkpoint ─► a layer in float32 ─► fused, packed ─► file ─► mapped again, used in place

At most one layer (or the embedding) is in memory in float32 at a time, and none of it stays: what a
process holds is the mapped file, whose pages the operating system shares and can drop.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from antiphon.checkpoint import ModelSpec

from .int8 import PACKING_REVISION, PackedWeight, block_bytes, from_block, pack, to_block
from .llama_weights import (
    Layer,
    Linear,
    Tensors,
    take_layer,
    take_norm,
    take_table,
    whole_vectors,
)
from .weight_cache import CachedTensor

REVISION = f"int8-{PACKING_REVISION}"
"""Part of the name of a file of these weights."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedLinear:
    """A projection: packed weight and, in some models, a bias float32 [channels]."""

    weight: PackedWeight
    bias: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedLayer:
    """One decoder layer; projections that share their input are fused into one product."""

    attention_norm: torch.Tensor
    qkv: QuantizedLinear
    attention_out: QuantizedLinear
    mlp_norm: torch.Tensor
    gate_up: QuantizedLinear
    down: QuantizedLinear


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedWeights:
    """All weights. Norms, biases and the embedding's rows stay float32, exactly as stored.

    `embedding` [vocabulary, hidden, widened to whole vectors]; only rows that are looked up become
    resident. `head` is packed from the embedding's values where the model ties them.
    """

    embedding: torch.Tensor
    layers: tuple[QuantizedLayer, ...]
    norm: torch.Tensor
    head: QuantizedLinear

    @property
    def count(self) -> int:
        """Weights of all matrices, padding included: multiply-adds of a token."""
        projections = [self.head] + [
            getattr(layer, name)
            for layer in self.layers
            for name in ("qkv", "attention_out", "gate_up", "down")
        ]
        return sum(linear.weight.panels.size for linear in projections)

    @classmethod
    def take(cls, spec: ModelSpec, tensors: Tensors) -> "QuantizedWeights":
        """Quantise float32 tensors that have their Hugging Face names; the mapping is emptied."""
        return assemble(spec, {part.name: part.values() for part in parts(spec, tensors)})


def parts(spec: ModelSpec, tensors: Tensors) -> list[CachedTensor]:
    """The weights as tensors of a file, in the order in which they must be computed.

    Names, shapes and types follow from `spec`; `values()` takes what it needs out of `tensors`.
    """
    return list(_parts(spec, tensors))


def _parts(spec: ModelSpec, tensors: Tensors) -> Iterator[CachedTensor]:
    hidden = whole_vectors(spec.hidden)

    @lru_cache(maxsize=1)
    def layer(number: int) -> Layer:
        return take_layer(spec, tensors, number)

    @lru_cache(maxsize=1)
    def embedding() -> torch.Tensor:
        return take_table(spec, tensors, "model.embed_tokens.weight")

    def head() -> torch.Tensor:
        tied = spec.tied_embeddings
        rows = embedding() if tied else take_table(spec, tensors, "lm_head.weight")
        embedding.cache_clear()
        return _packed(rows)

    yield CachedTensor(name="embedding", shape=(spec.vocab_size, hidden), values=embedding)
    yield _block("head", spec.vocab_size, hidden, head)
    for number in range(spec.layers):
        yield from _layer_parts(spec, f"layers.{number}.", lambda number=number: layer(number))
    yield CachedTensor(
        name="norm",
        shape=(hidden,),
        values=lambda: take_norm(spec, tensors, "model.norm.weight"),
    )


def _layer_parts(
    spec: ModelSpec, prefix: str, layer: Callable[[], Layer]
) -> Iterator[CachedTensor]:
    for norm in ("attention_norm", "mlp_norm"):
        yield CachedTensor(
            name=prefix + norm,
            shape=(whole_vectors(spec.hidden),),
            values=lambda norm=norm: getattr(layer(), norm),
        )
    for name, (channels, inputs, biased) in projection_shapes(spec).items():

        def linear(name: str = name) -> Linear:
            return getattr(layer(), name)

        yield _block(
            prefix + name, channels, inputs, lambda linear=linear: _packed(linear().weight)
        )
        if biased:
            yield CachedTensor(
                name=f"{prefix}{name}.bias",
                shape=(channels,),
                values=lambda linear=linear: _present(linear().bias),
            )


def projection_shapes(spec: ModelSpec) -> dict[str, tuple[int, int, bool]]:
    """Of a layer's fused projections, in the order of the forward pass: channels, inputs, bias."""
    hidden, inner = whole_vectors(spec.hidden), whole_vectors(spec.intermediate)
    head = whole_vectors(spec.head_dim)
    return {
        "qkv": ((spec.heads + 2 * spec.kv_heads) * head, hidden, spec.attention_bias),
        "attention_out": (hidden, spec.heads * head, spec.attention_bias),
        "gate_up": (2 * inner, hidden, spec.mlp_bias),
        "down": (hidden, inner, spec.mlp_bias),
    }


def assemble(spec: ModelSpec, tensors: dict[str, torch.Tensor]) -> QuantizedWeights:
    """The weights whose `parts` are `tensors`; shares their memory."""

    def linear(name: str, channels: int, inputs: int) -> QuantizedLinear:
        block = from_block(tensors[name].numpy(), channels, inputs)
        return QuantizedLinear(block, tensors.get(f"{name}.bias"))

    def layer(number: int) -> QuantizedLayer:
        prefix = f"layers.{number}."
        projections = {
            name: linear(prefix + name, channels, inputs)
            for name, (channels, inputs, _) in projection_shapes(spec).items()
        }
        norms = {name: tensors[prefix + name] for name in ("attention_norm", "mlp_norm")}
        return QuantizedLayer(**norms, **projections)

    return QuantizedWeights(
        embedding=tensors["embedding"],
        layers=tuple(map(layer, range(spec.layers))),
        norm=tensors["norm"],
        head=linear("head", spec.vocab_size, whole_vectors(spec.hidden)),
    )


def _block(
    name: str, channels: int, inputs: int, values: Callable[[], torch.Tensor]
) -> CachedTensor:
    shape = (block_bytes(channels, inputs),)
    return CachedTensor(name=name, shape=shape, values=values, dtype=torch.uint8)


def _packed(weight: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(to_block(pack(np.ascontiguousarray(weight.numpy()))))


def _present(bias: torch.Tensor | None) -> torch.Tensor:
    assert bias is not None
    return bias
