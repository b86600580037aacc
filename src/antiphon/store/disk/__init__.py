"""Blocks of KV in files: what a store still has after a restart."""

from .disk_tier import SEGMENT_BYTES, DiskTier
from .outcomes import Appended, DiskMiss, DiskRefusal, Fsync, NotAppended, Verified
from .private_folder import PrivateFolder

__all__ = [
    "SEGMENT_BYTES",
    "Appended",
    "DiskMiss",
    "DiskRefusal",
    "DiskTier",
    "Fsync",
    "NotAppended",
    "PrivateFolder",
    "Verified",
]
