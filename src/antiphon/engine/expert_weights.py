"""A sparse layer's weights in float32: taken out of a checkpoint's tensors, one MLP an expert."""

from collections.abc import Iterator

import torch

from antiphon.checkpoint import Experts, ModelSpec

from .expert_mix import ExpertWeights
from .linear import Linear, Tensors, whole_vectors, widen, widened_matrix


def take_experts(spec: ModelSpec, experts: Experts, tensors: Tensors, number: int) -> ExpertWeights:
    """Those of layer `number`; the mapping loses them. Shared experts become as many MLPs."""
    prefix = f"model.layers.{number}.mlp."
    width = whole_vectors(spec.hidden)
    router = widen(tensors.pop(f"{prefix}gate.weight"), (experts.count, width))
    correction = torch.zeros(experts.count, device=router.device)
    if experts.corrected:
        correction = tensors.pop(f"{prefix}correction.bias")
    linears = list(_linears(spec, experts, tensors, prefix))
    return ExpertWeights(
        router=router.contiguous(),
        correction=correction.contiguous(),
        gate_up=tuple(gate_up for gate_up, _ in linears),
        down=tuple(down for _, down in linears),
    )


def _linears(
    spec: ModelSpec, experts: Experts, tensors: Tensors, prefix: str
) -> Iterator[tuple[Linear, Linear]]:
    """Gate with up, and down, of each expert."""
    inner, hidden = (experts.intermediate,), (spec.hidden,)

    def linear(gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> tuple[Linear, Linear]:
        halves = [widened_matrix(half, inner, hidden) for half in (gate, up)]
        return Linear(torch.cat(halves)), Linear(widened_matrix(down, hidden, inner))

    def taken(name: str) -> list[torch.Tensor]:
        parts = ("gate_proj", "up_proj", "down_proj")
        return [tensors.pop(f"{prefix}{name}.{part}.weight") for part in parts]

    for number in range(experts.count):
        yield linear(*taken(f"experts.{number}"))
    if experts.shared:
        gate, up, down = taken("shared_experts")
        cuts = [tensor.split(inner[0]) for tensor in (gate, up, down.T)]
        for one_gate, one_up, one_down in zip(*cuts, strict=True):
            yield linear(one_gate, one_up, one_down.T.contiguous())
