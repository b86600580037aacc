"""Continuous batching of one worker."""

from .admission import DeferReason, Deferred
from .parts import STANDARD_PARTS, Parts
from .scheduler import SCHEDULER, SCHEDULER_METHODS, Scheduler

__all__ = [
    "SCHEDULER",
    "SCHEDULER_METHODS",
    "STANDARD_PARTS",
    "DeferReason",
    "Deferred",
    "Parts",
    "Scheduler",
]
