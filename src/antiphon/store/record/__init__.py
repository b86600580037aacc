"""A block of KV as bytes that outlive shared memory: on disk, on another machine."""

from .kv_origin import ElementType, KvOrigin, RecordedBlock, Rope
from .page_checksums import Page, all_match, check_pages, checksum_problem, new_pages
from .record_header import (
    ALIGNMENT,
    FIXED_BYTES,
    LIVE,
    MOST_HEADER_BYTES,
    REMOVED,
    VERSION,
    Chunk,
    Codec,
    Peek,
    RecordHeader,
    RecordProblem,
    decode_header,
    most_header_bytes,
    peek,
    unrecordable,
)

__all__ = [
    "ALIGNMENT",
    "FIXED_BYTES",
    "LIVE",
    "MOST_HEADER_BYTES",
    "REMOVED",
    "VERSION",
    "Chunk",
    "Codec",
    "ElementType",
    "KvOrigin",
    "Page",
    "Peek",
    "RecordHeader",
    "RecordProblem",
    "RecordedBlock",
    "Rope",
    "all_match",
    "check_pages",
    "checksum_problem",
    "decode_header",
    "most_header_bytes",
    "new_pages",
    "peek",
    "unrecordable",
]
