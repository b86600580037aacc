"""Small blocks with known bytes."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import xxhash

from antiphon.store.record import KvOrigin, Page, RecordedBlock, RecordHeader, new_pages

ORIGIN = KvOrigin(
    identity=bytes(range(32)),
    layout="page[layers=1, 2, kv_heads=1, page_tokens=16, width=8] fp32",
    page_tokens=16,
    block_tokens=32,
    page_bytes=512,
)


def key_of(number: int) -> bytes:
    return blake2b(str(number).encode(), digest_size=32).digest()


def block_of(number: int, **changes: object) -> RecordedBlock:
    """Block `number` of a chain: its parent is the block before."""
    block = RecordedBlock(
        key=key_of(number),
        parent=key_of(number - 1) if number else None,
        tenant=b"tenant",
        numerics="cpu-test",
    )
    return replace(block, **changes)


def pages_of(number: int, origin: KvOrigin = ORIGIN) -> list[Page]:
    """The pages that block `number` has in these tests."""
    pages = new_pages(origin)
    chance = np.random.default_rng(number)
    for page in pages:
        page[:] = chance.integers(0, 256, origin.page_bytes, np.uint8)
    return pages


def checksums(pages: Sequence[Page]) -> list[int]:
    """By the library, not by our own kernel."""
    return [xxhash.xxh3_64_intdigest(page) for page in pages]


def header_of(number: int, origin: KvOrigin = ORIGIN, **changes: object) -> RecordHeader:
    sums = tuple(checksums(pages_of(number, origin)))
    return RecordHeader.of(origin, block_of(number, **changes), sums)


def record_of(number: int, origin: KvOrigin = ORIGIN, **changes: object) -> bytes:
    pages = pages_of(number, origin)
    return header_of(number, origin, **changes).encoded() + b"".join(bytes(p) for p in pages)


def same(pages: Sequence[Page], others: Sequence[Page]) -> bool:
    return all(np.array_equal(page, other) for page, other in zip(pages, others, strict=True))
