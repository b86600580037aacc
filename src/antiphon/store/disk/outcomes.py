"""What comes of a write to the disk tier, or of a read from it."""

from dataclasses import dataclass
from enum import StrEnum

from antiphon.types import BlockKey


class Fsync(StrEnum):
    """When written bytes are forced to the disk. Whatever is lost is noticed, and is a miss."""

    NEVER = "never"
    """The system decides: a power cut may cost the last half minute."""
    SEGMENT = "segment"
    """When a segment is full, and at `close`."""
    WRITE = "write"
    """Before a block can be found."""


class DiskMiss(StrEnum):
    """Why a block was not read. After it the block is not here any more (but for CLOSED)."""

    ABSENT = "absent"
    """Never here, or gone."""
    DAMAGED = "damaged"
    """What lies there is not what was written; it is forgotten."""
    FAILED = "failed"
    """The system could not read it; it is forgotten."""
    CLOSED = "closed"


class DiskRefusal(StrEnum):
    """Why a block was not written."""

    KNOWN = "known"
    """It is here."""
    TOO_LARGE = "too_large"
    """Larger than the whole tier."""
    UNRECORDABLE = "unrecordable"
    """A name is longer than a record's field for it."""
    FULL = "full"
    """The disk has no room; the oldest segment was given up, writing goes on later."""
    FAILED = "failed"
    """The system could not write it."""
    FOLDER_GONE = "folder_gone"
    """The folder was deleted: nothing that is written could be found again."""
    PAUSED = "paused"
    """Writing failed before and has not been tried again yet."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Appended:
    """The block can be read from now on; `evicted` can't: they lay in the oldest segments."""

    evicted: tuple[BlockKey, ...] = ()


@dataclass(frozen=True, slots=True)
class NotAppended:
    """The block was not written. `evicted`: blocks that went nevertheless."""

    reason: DiskRefusal
    evicted: tuple[BlockKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """So many blocks were read and compared; those that were wrong are forgotten."""

    checked: int
    forgotten: tuple[BlockKey, ...]
