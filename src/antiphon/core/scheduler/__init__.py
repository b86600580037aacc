"""Continuous batching of one worker."""

from .admission import Hold, HoldReason
from .scheduler import SCHEDULER, SCHEDULER_METHODS, Scheduler

__all__ = ["SCHEDULER", "SCHEDULER_METHODS", "Hold", "HoldReason", "Scheduler"]
