"""A block of KV as bytes that outlive shared memory: on disk, on another machine."""

from .kv_origin import ElementType, KvOrigin, RecordedBlock, Rope

__all__ = ["ElementType", "KvOrigin", "RecordedBlock", "Rope"]
