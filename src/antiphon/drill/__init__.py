"""Faults on a live cluster under load, and proof that it loses nothing."""

from .drill import run_drill
from .feasible import check_feasible
from .local_target import LocalTarget, attached, started
from .plan import DrillPlan, FaultKind, Load, random_faults
from .plan_file import parse_range, read_plan
from .report import DrillReport
from .report_folder import write_report
from .run import drill_cluster, drill_server

__all__ = [
    "DrillPlan",
    "DrillReport",
    "FaultKind",
    "Load",
    "LocalTarget",
    "attached",
    "check_feasible",
    "drill_cluster",
    "drill_server",
    "parse_range",
    "random_faults",
    "read_plan",
    "run_drill",
    "started",
    "write_report",
]
