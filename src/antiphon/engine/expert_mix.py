"""A sparse layer in float32: each expert's product over the rows that chose it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from antiphon.checkpoint import Experts

from .expert_choice import ChoiceRules, choose_experts
from .linear import Linear
from .projection import padded_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWeights:
    """Router float32 [count, hidden], correction [count], and each expert's two projections.

    Routed experts first, then the shared ones.
    """

    router: torch.Tensor
    correction: torch.Tensor
    gate_up: tuple[Linear, ...]
    down: tuple[Linear, ...]


def rules_of(experts: Experts) -> ChoiceRules:
    """What the choice of experts needs to know."""
    return ChoiceRules(
        routed=experts.count,
        active=experts.active,
        shared=experts.shared,
        groups=experts.groups,
        active_groups=experts.active_groups,
        sigmoid=experts.scoring == "sigmoid",
        normalised=experts.normalised,
        scale=np.float32(experts.scale),
    )


def mix(
    weights: ExpertWeights,
    rules: ChoiceRules,
    normed: torch.Tensor,
    rows: int,
    gated: Callable[[np.ndarray, np.ndarray], None],
    count: Callable[[np.ndarray], None],
) -> torch.Tensor:
    """What the experts of the first `rows` rows of `normed` [≥ rows, hidden] give: as large.

    A row's outputs are added in the order of the experts' numbers, each computed as if alone
    (`projection.project`): its bits don't depend on which experts its neighbours chose. `count` is
    told the routed ones, int64 [rows, active].
    """
    slots = rules.active + rules.shared
    chosen, shares = np.empty((rows, slots), np.int64), np.empty((rows, slots), np.float32)
    router, correction = weights.router.numpy(), weights.correction.numpy()
    choose_experts(normed[:rows].numpy(), router, correction, rules, chosen, shares)
    count(chosen[:, : rules.active])
    mixed = torch.zeros_like(normed)
    for number in np.unique(chosen).tolist():
        at, slot = map(torch.from_numpy, np.nonzero(chosen == number))
        taken = normed.new_zeros(padded_rows(len(at)), normed.shape[1])
        taken[: len(at)] = normed[at]
        gate_up = weights.gate_up[number](taken)
        inner = taken.new_empty(len(taken), gate_up.shape[1] // 2)
        gated(gate_up.numpy(), inner.numpy())
        given = weights.down[number](inner)[: len(at)]
        mixed[at] += given * torch.from_numpy(shares)[at, slot, None]
    return mixed
