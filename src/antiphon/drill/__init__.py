"""Faults on a live cluster under load, and proof that it loses nothing."""

from .drill import run_drill
from .local_target import LocalTarget, attached, started
from .plan import DrillPlan, FaultKind
from .report import DrillReport
from .run import drill_cluster, drill_server

__all__ = [
    "DrillPlan",
    "DrillReport",
    "FaultKind",
    "LocalTarget",
    "attached",
    "drill_cluster",
    "drill_server",
    "run_drill",
    "started",
]
