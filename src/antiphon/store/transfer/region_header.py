"""The first bytes of a shared region: what lies where, so that a reader needs to trust nothing.

    0              header, `HEADER_BYTES`
    64 KiB         a uint64 generation per page
    a multiple     page 0, page 1, …  each one contiguous run of `page_bytes`
    of 2 MiB

A page over all layers is one run, so that a pull of it is one copy and one checksum.
"""

import struct
from dataclasses import dataclass
from typing import Self

from antiphon.errors import PeerError
from antiphon.types import KvShape

from .xxh3 import LEAST_BYTES, STRIPE_BYTES

HEADER_BYTES = 512
MOST_PAGES = 1 << 32
MOST_PAGE_BYTES = 1 << 32

_MAGIC = b"antiphKV"
_VERSION = 1
_FORMAT = struct.Struct("<8sIIQQQQH256s")
_GENERATIONS_AT = 64 << 10
_HUGE_PAGE = 2 << 20
_WORD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionHeader:
    """Where the parts of a region lie; offsets and sizes in bytes."""

    layout: str
    page_tokens: int
    page_bytes: int
    pages: int
    generations_at: int
    pages_at: int

    @classmethod
    def of(cls, shape: KvShape) -> Self:
        """The header of a new region."""
        generations_end = _GENERATIONS_AT + _WORD * shape.pages
        return cls(
            layout=shape.layout,
            page_tokens=shape.page_tokens,
            page_bytes=shape.page_bytes,
            pages=shape.pages,
            generations_at=_GENERATIONS_AT,
            pages_at=-(-generations_end // _HUGE_PAGE) * _HUGE_PAGE,
        )

    @property
    def region_bytes(self) -> int:
        """Size of the whole region."""
        return self.pages_at + self.pages * self.page_bytes

    def encoded(self) -> bytes:
        """`HEADER_BYTES` bytes."""
        layout = self.layout.encode()
        fields = (self.page_tokens, self.page_bytes, self.pages, self.generations_at, self.pages_at)
        packed = _FORMAT.pack(_MAGIC, _VERSION, *fields, len(layout), layout)
        return packed.ljust(HEADER_BYTES, b"\0")

    @classmethod
    def decoded(cls, data: bytes, file_bytes: int) -> Self:
        """Read a peer's header. Raises `PeerError` unless all of it lies within `file_bytes`."""
        if len(data) < _FORMAT.size:
            raise PeerError(f"a KV region of {file_bytes} bytes has no header")
        magic, version, page_tokens, page_bytes, pages, generations_at, pages_at, length, layout = (
            _FORMAT.unpack_from(data)
        )
        if magic != _MAGIC:
            raise PeerError(f"this is no KV region: it begins with {magic!r}")
        if version != _VERSION:
            raise PeerError(f"a KV region of version {version} can't be read, only {_VERSION}")
        header = cls(
            layout=layout[:length].decode("utf-8", errors="replace"),
            page_tokens=page_tokens,
            page_bytes=page_bytes,
            pages=pages,
            generations_at=generations_at,
            pages_at=pages_at,
        )
        problem = header._problem(file_bytes)
        if problem is not None:
            raise PeerError(f"the header of a KV region contradicts itself: {problem}")
        return header

    def _problem(self, file_bytes: int) -> str | None:
        """What kernels rely on and this header breaks; None: nothing."""
        if not 1 <= self.pages <= MOST_PAGES:
            return f"{self.pages} pages"
        if page_size_problem(self.page_bytes) is not None:
            return f"pages of {self.page_bytes} bytes"
        if self.generations_at % _WORD or self.generations_at < HEADER_BYTES:
            return f"generations at byte {self.generations_at}"
        if self.pages_at % STRIPE_BYTES:
            return f"pages at byte {self.pages_at}"
        if self.generations_at + _WORD * self.pages > self.pages_at:
            return "generations and pages overlap"
        if self.region_bytes > file_bytes:
            return f"{self.region_bytes} bytes are described, but there are {file_bytes}"
        return None


def page_size_problem(page_bytes: int) -> str | None:
    """Why pages of this size can't be exchanged; None: they can."""
    if page_bytes % STRIPE_BYTES or not LEAST_BYTES <= page_bytes <= MOST_PAGE_BYTES:
        return (
            f"a page has {page_bytes} bytes; only multiples of {STRIPE_BYTES} "
            f"from {LEAST_BYTES} on can be exchanged"
        )
    return None
