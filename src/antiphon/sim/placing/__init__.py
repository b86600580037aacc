"""Placements, judged in the fleet simulator: bounds by closed forms, goodput by simulation."""

from .phase_bounds import PhaseBounds
from .placement_case import (
    MAX_SEQUENCES,
    PlacementCase,
    TrialEffort,
    cluster_values,
    jointly,
)
from .plan_order import PlanOrder
from .search_run import SearchRun
from .users_at_rate import CallShape, UsersAtRate, WorkloadUsers, call_shape
from .worker_times import Hardware, WorkerKind, WorkerTime

__all__ = [
    "MAX_SEQUENCES",
    "CallShape",
    "Hardware",
    "PhaseBounds",
    "PlacementCase",
    "PlanOrder",
    "SearchRun",
    "TrialEffort",
    "UsersAtRate",
    "WorkerKind",
    "WorkerTime",
    "WorkloadUsers",
    "call_shape",
    "cluster_values",
    "jointly",
]
