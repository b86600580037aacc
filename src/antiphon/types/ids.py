"""Names for plain values, so that signatures say what they mean."""

from typing import NamedTuple, NewType, TypeAlias

RequestId = NewType("RequestId", str)
WorkerId = NewType("WorkerId", str)
Incarnation = NewType("Incarnation", str)
"""Random id of one life of a process: a restarted worker has another one."""
StoreName = NewType("StoreName", str)
"""A store of a pool; it keeps its name over its lives."""
LeaseId = NewType("LeaseId", str)
"""Unguessable id of one promise to keep pages for a reader."""

HostName: TypeAlias = str
"""A host of a cluster as its certificate names it: a DNS label."""
TokenId: TypeAlias = int
PageId: TypeAlias = int
NO_PAGE: PageId = -1
"""An empty entry of a page table: nobody reads what would lie there, or nothing was computed."""
BlockKey: TypeAlias = bytes
"""32 bytes of chained BLAKE2b (see `core.kv.block_keys`)."""

Seconds: TypeAlias = float
"""A point on one process's monotonic clock, or a duration."""


class SequenceKey(NamedTuple):
    """One completion of one request."""

    request: RequestId
    sequence: int
