"""Why the host tier does not keep a block."""

from dataclasses import dataclass
from enum import StrEnum


class DeclineReason(StrEnum):
    """Why a block is not kept."""

    KNOWN = "known"
    """It is here, or being written."""
    QUOTA = "quota"
    """Its tenant has all it may have, and none of that can go now."""
    FULL = "full"
    """Nothing can go now."""
    ORPHAN = "orphan"
    """Its parent is nowhere, so that nobody would find it: it pushes nothing out."""
    LOOP = "loop"
    """It would be its own ancestor: no honest chain of hashes is."""


@dataclass(frozen=True, slots=True)
class Declined:
    """No slot, and nothing was changed."""

    reason: DeclineReason
