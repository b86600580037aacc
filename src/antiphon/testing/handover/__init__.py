"""A model of the hand-over for exhaustive exploration."""

from .model import (
    STANDARD_HANDOVER_PARTS,
    Bounds,
    HandoverModel,
    HandoverParts,
    HandoverState,
    Move,
)

__all__ = [
    "STANDARD_HANDOVER_PARTS",
    "Bounds",
    "HandoverModel",
    "HandoverParts",
    "HandoverState",
    "Move",
]
