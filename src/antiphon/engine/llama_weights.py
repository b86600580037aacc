"""A Llama model's weights, arranged for the kernels: fused, and widened to whole vectors.

Kernels work on vectors of `LANES` floats. Where a model's hidden size, head or intermediate size is
no multiple of that, its weights get rows and columns of zeros: what they compute is zero, and takes
no part in the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
import torch.nn.functional as F

from antiphon.checkpoint import ModelSpec

from .lanes import LANES
from .projection import project


class Tensors(Protocol):
    """Float32 tensors by Hugging Face name, to be taken once: a dict, or a file read lazily."""

    def pop(self, key: str, /) -> torch.Tensor:
        """Hand over a tensor."""
        ...


def whole_vectors(width: int) -> int:
    """`width`, rounded up to a multiple of `LANES`."""
    return -(-width // LANES) * LANES


@dataclass(frozen=True, slots=True)
class Linear:
    """A projection: weight [outputs, inputs] and, in some models, a bias [outputs]."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See `projection.project`."""
        return project(rows, self.weight, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; projections that share their input are fused into one product."""

    attention_norm: torch.Tensor
    qkv: Linear
    attention_out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaWeights:
    """All of a model's tensors, float32."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Linear

    @classmethod
    def take(cls, spec: ModelSpec, tensors: Tensors) -> Self:
        """Arrange tensors that have their Hugging Face names and shapes.

        They are taken out of the mapping one by one, so that copies don't double the memory.
        """
        embedding = take_table(spec, tensors, "model.embed_tokens.weight")
        head = embedding
        if not spec.tied_embeddings:
            head = take_table(spec, tensors, "lm_head.weight")
        return cls(
            embedding=embedding,
            layers=tuple(take_layer(spec, tensors, number) for number in range(spec.layers)),
            norm=take_norm(spec, tensors, "model.norm.weight"),
            head=Linear(head),
        )


def take_table(spec: ModelSpec, tensors: Tensors, name: str) -> torch.Tensor:
    """The embedding or the head: float32 [vocabulary, hidden, widened]."""
    return _widen(tensors.pop(name), (spec.vocab_size, whole_vectors(spec.hidden)))


def take_norm(spec: ModelSpec, tensors: Tensors, name: str) -> torch.Tensor:
    """A norm's gain: float32 [hidden, widened]."""
    return _widen(tensors.pop(name), (whole_vectors(spec.hidden),))


def take_layer(spec: ModelSpec, tensors: Tensors, number: int) -> Layer:
    """Layer `number`; its tensors are taken out of the mapping."""
    prefix = f"model.layers.{number}."
    hidden, inner = (spec.hidden,), (spec.intermediate,)
    queries, keys = (spec.heads, spec.head_dim), (spec.kv_heads, spec.head_dim)

    def norm(name: str) -> torch.Tensor:
        return take_norm(spec, tensors, f"{prefix}{name}.weight")

    def fused(
        parts: Sequence[tuple[str, tuple[int, ...]]], inputs: tuple[int, ...], bias: bool
    ) -> Linear:
        weights = [
            _matrix(tensors.pop(f"{prefix}{name}.weight"), outputs, inputs)
            for name, outputs in parts
        ]
        biases = [
            _matrix(tensors.pop(f"{prefix}{name}.bias"), outputs, ())
            for name, outputs in (parts if bias else ())
        ]
        return Linear(_joined(weights), _joined(biases) if biases else None)

    attention, mlp = spec.attention_bias, spec.mlp_bias
    return Layer(
        attention_norm=norm("input_layernorm"),
        qkv=fused(
            [
                ("self_attn.q_proj", queries),
                ("self_attn.k_proj", keys),
                ("self_attn.v_proj", keys),
            ],
            hidden,
            attention,
        ),
        attention_out=fused([("self_attn.o_proj", hidden)], queries, attention),
        mlp_norm=norm("post_attention_layernorm"),
        gate_up=fused([("mlp.gate_proj", inner), ("mlp.up_proj", inner)], hidden, mlp),
        down=fused([("mlp.down_proj", hidden)], inner, mlp),
    )


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _matrix(
    tensor: torch.Tensor, outputs: tuple[int, ...], inputs: tuple[int, ...]
) -> torch.Tensor:
    """A weight [∏ outputs, ∏ inputs], or a bias without inputs, each side's last axis widened."""
    wide_outputs = (*outputs[:-1], whole_vectors(outputs[-1]))
    wide_inputs = (*inputs[:-1], whole_vectors(inputs[-1])) if inputs else ()
    wide = _widen(tensor.view(outputs + inputs), wide_outputs + wide_inputs)
    return wide.reshape(-1, *([_product(wide_inputs)] if inputs else []))


def _product(sizes: tuple[int, ...]) -> int:
    return torch.Size(sizes).numel()


def _widen(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Zeros behind each axis up to `shape`; the tensor itself if nothing is missing."""
    missing = [wanted - size for wanted, size in zip(shape, tensor.shape, strict=True)]
    if not any(missing):
        return tensor
    return F.pad(tensor, [amount for size in reversed(missing) for amount in (0, size)])
