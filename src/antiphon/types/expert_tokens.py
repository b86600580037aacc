"""What a model's experts have computed."""

from dataclasses import dataclass

MOST_EXPERT_COUNTS = 4096
"""So many counts a worker tells at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTokens:
    """How many tokens each routed expert has computed; shared experts, who get all, don't count.

    `totals`: one count for each of `layers`, ascending numbers of the model's sparse layers, and
    in it for each of the `experts`, who are numbered from 0. Without `layers` the totals are sums
    over all of them: there would be more than `MOST_EXPERT_COUNTS`. They only grow.
    """

    experts: int
    layers: tuple[int, ...]
    totals: tuple[int, ...]
