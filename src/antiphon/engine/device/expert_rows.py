"""A sparse layer on a device: which experts a row takes, and what they give, in a fixed order."""

from collections.abc import Callable

import torch

from antiphon.checkpoint import Experts

from ..expert_mix import ExpertWeights
from ..linear import Linear
from .shapes import Shapes

Gated = Callable[[Linear, Linear, torch.Tensor], torch.Tensor]
"""What an MLP of two projections gives for normalised rows: float32 of the same shape."""


def choose(
    normed: torch.Tensor, weights: ExpertWeights, experts: Experts, shapes: Shapes
) -> tuple[torch.Tensor, torch.Tensor]:
    """int64 [rows, active]: routed experts in ascending order; float32, as large: their weights.

    For float32 [rows, hidden], a whole number of blocks. Like `expert_choice.choose_experts`: of
    equal scores the lower number is better.
    """

    def both(rows: torch.Tensor) -> torch.Tensor:
        chosen, shares = _chosen(rows @ weights.router.T, weights.correction, experts)
        return torch.cat([chosen.float(), shares], dim=1)

    found = shapes.by_block(both, normed)
    return found[:, : experts.active].long(), found[:, experts.active :]


def mix(
    normed: torch.Tensor,
    rows: int,
    weights: ExpertWeights,
    experts: Experts,
    shapes: Shapes,
    gated: Gated,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the experts of the first `rows` rows give, float32 as large as `normed`; and the routed
    ones that they chose, int64 [rows, active].

    A row's outputs are added in the order of the experts' numbers, the shared ones last.
    """
    chosen, shares = choose(normed, weights, experts, shapes)
    chosen, mixed = chosen[:rows], torch.zeros_like(normed)
    linears = list(zip(weights.gate_up, weights.down, strict=True))

    def of(number: int, taken: torch.Tensor) -> torch.Tensor:
        gate_up, down = linears[number]
        return shapes.by_block(lambda block: gated(gate_up, down, block), taken)

    for number in chosen.unique().tolist():
        at, slot = (chosen == number).nonzero(as_tuple=True)
        taken = normed.new_zeros(shapes.padded_rows(len(at)), normed.shape[1])
        taken[: len(at)] = normed[at]
        mixed[at] += of(number, taken)[: len(at)] * shares[at, slot, None]
    for number in range(experts.count, len(linears)):
        mixed += of(number, normed)
    return mixed, chosen


def _chosen(
    logits: torch.Tensor, correction: torch.Tensor, experts: Experts
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = logits.sigmoid() if experts.scoring == "sigmoid" else logits.softmax(-1)
    judged = scores + correction
    if experts.groups > 1:
        judged = _without_groups(judged, experts)
    chosen = _best(judged, experts.active).sort(dim=-1).values
    shares = scores.gather(1, chosen)
    if experts.normalised:
        shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)
    return chosen, shares * experts.scale


def _without_groups(judged: torch.Tensor, experts: Experts) -> torch.Tensor:
    """−∞ for experts outside of the best groups."""
    grouped = judged.view(len(judged), experts.groups, -1)
    best = _best(grouped.topk(2, dim=-1).values.sum(-1), experts.active_groups)
    kept = torch.zeros(grouped.shape[:2], dtype=torch.bool, device=judged.device)
    kept.scatter_(1, best, torch.ones_like(best, dtype=torch.bool))
    return grouped.masked_fill(~kept[:, :, None], float("-inf")).view_as(judged)


def _best(values: torch.Tensor, count: int) -> torch.Tensor:
    """Where each row's largest values are; of equal ones the first."""
    return values.sort(dim=-1, descending=True, stable=True).indices[:, :count]
