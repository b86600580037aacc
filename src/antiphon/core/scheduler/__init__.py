"""Continuous batching of one worker."""

from .admission import Hold, HoldReason
from .scheduler import Scheduler

__all__ = ["Hold", "HoldReason", "Scheduler"]
