"""A model's weights as packed int8 matrices: made from a checkpoint, kept on disk, mapped.

checkpoint ─► a layer in float32 ─► fused, packed ─► file ─► mapped again, used in place

At most one layer (or the embedding) is in memory in float32 at a time, and none of it stays: what a
process holds is the mapped file, whose pages the operating system shares and can drop.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch

from antiphon.checkpoint import Experts, ModelSpec

from .expert_mix import ExpertWeights
from .int8 import PACKING_REVISION, PackedWeight, block_bytes, from_block, pack, to_block
from .linear import Linear, Tensors, whole_vectors
from .llama_weights import Layer, take_layer, take_norm, take_table
from .weight_cache import CachedTensor

_Thing = TypeVar("_Thing")

REVISION = f"int8-{PACKING_REVISION}"
"""Part of the name of a file of these weights."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedLinear:
    """A projection: packed weight and, in some models, a bias float32 [channels]."""

    weight: PackedWeight
    bias: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedExperts:
    """See `expert_mix.ExpertWeights`; the router stays float32."""

    router: torch.Tensor
    correction: torch.Tensor
    gate_up: tuple[QuantizedLinear, ...]
    down: tuple[QuantizedLinear, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedLayer:
    """One decoder layer: see `llama_weights.Layer`."""

    attention_norm: torch.Tensor
    qkv: QuantizedLinear
    head_norms: torch.Tensor | None
    attention_out: QuantizedLinear
    attention_out_norm: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: QuantizedLinear | None
    down: QuantizedLinear | None
    experts: QuantizedExperts | None
    mlp_out_norm: torch.Tensor | None


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
        """Weights of all matrices, padding included: at most so many multiply-adds a token."""
        projections: list[QuantizedLinear | None] = [self.head]
        for layer in self.layers:
            projections += [layer.qkv, layer.attention_out, layer.gate_up, layer.down]
            if layer.experts is not None:
                projections += [*layer.experts.gate_up, *layer.experts.down]
        return sum(linear.weight.panels.size for linear in projections if linear is not None)

    @classmethod
    def take(cls, spec: ModelSpec, tensors: Tensors) -> "QuantizedWeights":
        """Quantise float32 tensors that have the engine's names; the mapping is emptied."""
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
        yield from _layer_parts(spec, number, lambda number=number: layer(number))
    yield CachedTensor(
        name="norm",
        shape=(hidden,),
        values=lambda: take_norm(spec, tensors, "model.norm.weight"),
    )


def _layer_parts(
    spec: ModelSpec, number: int, layer: Callable[[], Layer]
) -> Iterator[CachedTensor]:
    prefix = f"layers.{number}."
    for norm, shape in norm_shapes(spec).items():
        yield CachedTensor(
            name=prefix + norm,
            shape=shape,
            values=lambda norm=norm: getattr(layer(), norm),
        )
    for name, (channels, inputs, biased) in projection_shapes(spec, number).items():

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
    if spec.experts is not None and spec.experts.sparse(number):
        yield from _expert_parts(spec, spec.experts, prefix, lambda: _present(layer().experts))


def _expert_parts(
    spec: ModelSpec, experts: Experts, prefix: str, taken: Callable[[], ExpertWeights]
) -> Iterator[CachedTensor]:
    shapes = {"router": (experts.count, whole_vectors(spec.hidden)), "correction": (experts.count,)}
    for name, shape in shapes.items():
        yield CachedTensor(
            name=prefix + name, shape=shape, values=lambda name=name: getattr(taken(), name)
        )
    for number in range(experts.count + experts.shared):
        for name, (channels, inputs) in expert_shapes(spec, experts).items():

            def weight(name: str = name, number: int = number) -> torch.Tensor:
                return _packed(getattr(taken(), name)[number].weight)

            yield _block(f"{prefix}experts.{number}.{name}", channels, inputs, weight)


def norm_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Of a layer's norms that the model has."""
    hidden = (whole_vectors(spec.hidden),)
    shapes: dict[str, tuple[int, ...]] = {"attention_norm": hidden, "mlp_norm": hidden}
    if spec.qk_norm:
        shapes["head_norms"] = (2, whole_vectors(spec.head_dim))
    if spec.post_norms:
        shapes |= {"attention_out_norm": hidden, "mlp_out_norm": hidden}
    return shapes


def projection_shapes(spec: ModelSpec, layer: int) -> dict[str, tuple[int, int, bool]]:
    """Of a layer's fused projections, in the order of the forward pass: channels, inputs, bias."""
    sparse = spec.experts is not None and spec.experts.sparse(layer)
    return attention_shapes(spec) if sparse else {**attention_shapes(spec), **mlp_shapes(spec)}


def expert_shapes(spec: ModelSpec, experts: Experts) -> dict[str, tuple[int, int]]:
    """Of one expert's projections: channels, inputs."""
    hidden, inner = whole_vectors(spec.hidden), whole_vectors(experts.intermediate)
    return {"gate_up": (2 * inner, hidden), "down": (hidden, inner)}


def attention_shapes(spec: ModelSpec) -> dict[str, tuple[int, int, bool]]:
    """See `projection_shapes`."""
    hidden, head = whole_vectors(spec.hidden), whole_vectors(spec.head_dim)
    return {
        "qkv": ((spec.heads + 2 * spec.kv_heads) * head, hidden, spec.qkv_bias),
        "attention_out": (hidden, spec.heads * head, spec.out_bias),
    }


def mlp_shapes(spec: ModelSpec) -> dict[str, tuple[int, int, bool]]:
    """See `projection_shapes`."""
    hidden, inner = whole_vectors(spec.hidden), whole_vectors(spec.intermediate)
    return {
        "gate_up": (2 * inner, hidden, spec.mlp_bias),
        "down": (hidden, inner, spec.mlp_bias),
    }


def assemble(spec: ModelSpec, tensors: dict[str, torch.Tensor]) -> QuantizedWeights:
    """The weights whose `parts` are `tensors`; shares their memory."""

    def linear(name: str, channels: int, inputs: int) -> QuantizedLinear:
        block = from_block(tensors[name].numpy(), channels, inputs)
        return QuantizedLinear(block, tensors.get(f"{name}.bias"))

    def experts_of(prefix: str, experts: Experts) -> QuantizedExperts:
        names = [f"{prefix}experts.{n}." for n in range(experts.count + experts.shared)]
        shapes = expert_shapes(spec, experts)
        return QuantizedExperts(
            router=tensors[f"{prefix}router"],
            correction=tensors[f"{prefix}correction"],
            gate_up=tuple(linear(f"{name}gate_up", *shapes["gate_up"]) for name in names),
            down=tuple(linear(f"{name}down", *shapes["down"]) for name in names),
        )

    def layer(number: int) -> QuantizedLayer:
        prefix = f"layers.{number}."
        projections = {
            name: linear(prefix + name, channels, inputs)
            for name, (channels, inputs, _) in projection_shapes(spec, number).items()
        }
        sparse = spec.experts is not None and spec.experts.sparse(number)
        return QuantizedLayer(
            attention_norm=tensors[f"{prefix}attention_norm"],
            head_norms=tensors.get(f"{prefix}head_norms"),
            attention_out_norm=tensors.get(f"{prefix}attention_out_norm"),
            mlp_norm=tensors[f"{prefix}mlp_norm"],
            mlp_out_norm=tensors.get(f"{prefix}mlp_out_norm"),
            qkv=projections["qkv"],
            attention_out=projections["attention_out"],
            gate_up=projections.get("gate_up"),
            down=projections.get("down"),
            experts=experts_of(prefix, spec.experts) if spec.experts and sparse else None,
        )

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


def _present(thing: _Thing | None) -> _Thing:
    assert thing is not None
    return thing
