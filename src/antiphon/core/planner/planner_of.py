"""The planner that a configuration asks for: alike in a gateway and in a replay."""

from dataclasses import fields
from typing import Any

from antiphon.core.costs import PhaseTime
from antiphon.core.worker_spec import planned_roles, worker_count
from antiphon.types import Config, Slo

from .capacity import Capacity
from .planner import Planner
from .rules import PlannerRules

PLANNER = "planner"
"""The name of `Planner` in a record of decisions."""
PLANNER_METHODS = ("decide",)
"""The methods of `Planner` whose calls make up its record."""


def rules_of(config: Config) -> PlannerRules:
    """Each key of `[planner]` is the rule of that name; the targets are the router's.

    Without a budget there may be as many workers as there are at the start.
    """
    given = config.planner
    named: dict[str, Any] = {
        rule.name: getattr(given, rule.name)
        for rule in fields(PlannerRules)
        if hasattr(given, rule.name)
    }
    return PlannerRules(
        **named
        | {
            "slo": Slo(ttft_s=config.router.ttft_s, tpot_s=config.router.tpot_s),
            "roles": planned_roles(config.cluster),
            "budget": given.budget or worker_count(config.cluster),
        }
    )


def planner_of(config: Config, phases: PhaseTime, kv_bytes_per_token: int) -> Planner:
    """A fresh planner of workers that are all alike: one device each, its part of the cores."""
    usable_bytes = config.kv.memory_bytes * (1 - config.scheduler.reserve_fraction)
    capacity = Capacity(
        phases,
        kv_tokens=int(usable_bytes / max(1, kv_bytes_per_token)),
        max_sequences=config.scheduler.max_num_seqs,
    )
    rules = rules_of(config)
    return Planner(rules, dict.fromkeys(rules.roles, capacity))
