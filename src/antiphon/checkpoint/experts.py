"""Mixtures of experts: how many MLPs a layer has, and how a row's are chosen."""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite


class Scoring(StrEnum):
    """What the router's logits become."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The experts of a model's sparse layers (Shazeer et al. 2017; DeepSeek-AI 2024, §2.1.2).

    Of `count` routed experts a row takes the `active` ones with the highest scores, and all
    `shared` ones; each is an MLP of width `intermediate`. Layers of `dense_layers` have one plain
    MLP. `normalised`: the weights of the chosen sum to 1, before they are multiplied by `scale`.
    `corrected`: a bias for each expert takes part in the choice but not in the weights. With
    `groups` of neighbouring experts, only those of the `active_groups` best groups can be chosen;
    a group is as good as its two best experts together.
    """

    count: int
    active: int
    intermediate: int
    shared: int = 0
    dense_layers: tuple[int, ...] = ()
    scoring: Scoring = Scoring.SOFTMAX
    normalised: bool = True
    scale: float = 1.0
    corrected: bool = False
    groups: int = 1
    active_groups: int = 1

    def sparse(self, layer: int) -> bool:
        """Whether `layer` has experts."""
        return layer not in self.dense_layers


_MOST = 4096


def find_expert_flaw(experts: Experts | None) -> str | None:
    """Say what makes `experts` impossible, or None."""
    if experts is None:
        return None
    for name in ("count", "active", "groups", "active_groups"):
        value = getattr(experts, name)
        if not 0 < value <= _MOST:
            return f"experts: {name} is {value}, but must be at least 1 and at most {_MOST}"
    if not 0 < experts.intermediate < 2**31 or not 0 <= experts.shared <= _MOST:
        return f"experts: {experts.intermediate} wide, {experts.shared} shared: impossible"
    if not (isfinite(experts.scale) and experts.scale > 0):
        return f"experts: scale is {experts.scale}, but must be a positive, finite number"
    size, rest = divmod(experts.count, experts.groups)
    if rest or (experts.groups > 1 and size < 2):
        return f"{experts.count} experts don't form {experts.groups} groups of two or more"
    if experts.active_groups > experts.groups or experts.active > experts.active_groups * size:
        return (
            f"{experts.active} experts of {experts.active_groups} groups of {size} can't be chosen"
        )
    return None
