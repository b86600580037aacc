"""A model's weights, arranged for the kernels: fused, and widened to whole vectors.

Kernels work on vectors of `LANES` floats. Where a model's hidden size, head or intermediate size is
no multiple of that, its weights get rows and columns of zeros: what they compute is zero, and takes
no part in the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from antiphon.checkpoint import ModelSpec

from .expert_mix import ExpertWeights
from .expert_weights import take_experts
from .linear import Linear, Tensors, whole_vectors, widen, widened_matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; projections that share their input are fused into one product.

    `head_norms` [2, head_dim, widened]: gains of queries' and of keys' heads. `attention_out_norm`
    and `mlp_out_norm`: gains of what the block gives. A layer has `gate_up` and `down`, or
    `experts`. None: the layer doesn't have it.
    """

    attention_norm: torch.Tensor
    qkv: Linear
    head_norms: torch.Tensor | None
    attention_out: Linear
    attention_out_norm: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: Linear | None
    down: Linear | None
    experts: ExpertWeights | None
    mlp_out_norm: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaWeights:
    """All of a model's tensors, float32."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Linear

    @classmethod
    def take(cls, spec: ModelSpec, tensors: Tensors) -> Self:
        """Arrange tensors that have the engine's names, and shapes as in PyTorch.

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
    return widen(tensors.pop(name), (spec.vocab_size, whole_vectors(spec.hidden)))


def take_norm(spec: ModelSpec, tensors: Tensors, name: str) -> torch.Tensor:
    """A norm's gain: float32 [hidden, widened]."""
    return widen(tensors.pop(name), (whole_vectors(spec.hidden),))


def take_layer(spec: ModelSpec, tensors: Tensors, number: int) -> Layer:
    """Layer `number`; its tensors are taken out of the mapping."""
    prefix = f"model.layers.{number}."
    hidden, inner = (spec.hidden,), (spec.intermediate,)
    queries, keys = (spec.heads, spec.head_dim), (spec.kv_heads, spec.head_dim)
    head_width = (whole_vectors(spec.head_dim),)

    def norm(name: str) -> torch.Tensor:
        return take_norm(spec, tensors, f"{prefix}{name}.weight")

    def head_norms() -> torch.Tensor:
        return torch.stack(
            [
                widen(tensors.pop(f"{prefix}self_attn.{name}.weight"), head_width)
                for name in ("q_norm", "k_norm")
            ]
        )

    def fused(
        parts: Sequence[tuple[str, tuple[int, ...]]], inputs: tuple[int, ...], bias: bool
    ) -> Linear:
        weights = [
            widened_matrix(tensors.pop(f"{prefix}{name}.weight"), outputs, inputs)
            for name, outputs in parts
        ]
        biases = [
            widened_matrix(tensors.pop(f"{prefix}{name}.bias"), outputs, ())
            for name, outputs in (parts if bias else ())
        ]
        return Linear(_joined(weights), _joined(biases) if biases else None)

    sparse = spec.experts is not None and spec.experts.sparse(number)
    gate_up = down = None
    if not sparse:
        halves = [("mlp.gate_proj", inner), ("mlp.up_proj", inner)]
        gate_up = fused(halves, hidden, spec.mlp_bias)
        down = fused([("mlp.down_proj", hidden)], inner, spec.mlp_bias)
    return Layer(
        attention_norm=norm("input_layernorm"),
        qkv=fused(
            [
                ("self_attn.q_proj", queries),
                ("self_attn.k_proj", keys),
                ("self_attn.v_proj", keys),
            ],
            hidden,
            spec.qkv_bias,
        ),
        head_norms=head_norms() if spec.qk_norm else None,
        attention_out=fused([("self_attn.o_proj", hidden)], queries, spec.out_bias),
        attention_out_norm=norm("self_attn.out_norm") if spec.post_norms else None,
        mlp_norm=norm("post_attention_layernorm"),
        gate_up=gate_up,
        down=down,
        experts=take_experts(spec, spec.experts, tensors, number)
        if spec.experts is not None and sparse
        else None,
        mlp_out_norm=norm("mlp.out_norm") if spec.post_norms else None,
    )


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
