"""Continuous batching of one worker."""

from .admission import DeferReason, Deferred
from .parts import STANDARD_PARTS, Parts
from .scheduler import SCHEDULER, SCHEDULER_METHODS, Scheduler
from .sequence import SequenceState
from .sequence_memory import SequenceMemory

__all__ = [
    "SCHEDULER",
    "SCHEDULER_METHODS",
    "STANDARD_PARTS",
    "DeferReason",
    "Deferred",
    "Parts",
    "Scheduler",
    "SequenceMemory",
    "SequenceState",
]
