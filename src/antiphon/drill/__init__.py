"""Faults on a live cluster under load, and proof that it loses nothing."""

from .drill import run_drill
from .local_target import LocalTarget, attached, started
from .plan import DrillPlan, FaultKind
from .report import DrillReport

__all__ = [
    "DrillPlan",
    "DrillReport",
    "FaultKind",
    "LocalTarget",
    "attached",
    "run_drill",
    "started",
]
