"""What is said on a data socket after the handshake: little-endian, of fixed sizes.

    taker ──► Request   number, rows, start, end; then (page, generation) of each row
    owner ──► Reply     number, rows; a verdict for each row
              the bytes start … end of each page whose verdict is GOOD, in order
              a verdict for each row: was it reassigned meanwhile

A taker may ask for more before it has what it asked for; replies come in the order of requests.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, Self

from antiphon.core.transfer import MOST_ROWS
from antiphon.errors import PeerError
from antiphon.store.transfer.xxh3 import LEAST_BYTES, STRIPE_BYTES

HEAD_WORDS = 3
"""Of a request, in words of 8 bytes: number and rows, start, end."""
REPLY_BYTES = 8
ROW_BYTES = 16
MOST_REQUEST_BYTES = 16 << 20
"""Of one reply, unless one page alone has more."""
MOST_OUTSTANDING = 4
"""Requests on one connection: what waits of them fits into any socket's buffer."""


@dataclass(frozen=True, slots=True)
class Request:
    """The first bytes of a request."""

    number: int
    rows: int
    start: int
    end: int

    FORMAT: ClassVar[struct.Struct] = struct.Struct("<IIQQ")

    def encoded(self) -> bytes:
        """As it is sent."""
        return self.FORMAT.pack(self.number, self.rows, self.start, self.end)

    @classmethod
    def decoded(cls, data: bytes | bytearray | memoryview, page_bytes: int) -> Self:
        """Raises `PeerError` for what no honest taker asks of pages of this size."""
        request = cls(*cls.FORMAT.unpack(data))
        if not 1 <= request.rows <= MOST_ROWS:
            raise PeerError(f"a request for {request.rows} pages; 1 … {MOST_ROWS} can be asked for")
        start, end = request.start, request.end
        if start % STRIPE_BYTES or end % STRIPE_BYTES or not start + LEAST_BYTES <= end:
            raise PeerError(f"a request for bytes {start} … {end} of each page")
        if end > page_bytes:
            raise PeerError(f"a request for byte {end} of pages of {page_bytes}")
        size = request.rows * (end - start)
        if size > max(MOST_REQUEST_BYTES, page_bytes):
            raise PeerError(f"a request for {size} bytes at once")
        return request


@dataclass(frozen=True, slots=True)
class Reply:
    """The first bytes of a reply."""

    number: int
    rows: int

    FORMAT: ClassVar[struct.Struct] = struct.Struct("<II")

    def encoded(self) -> bytes:
        """As it is sent."""
        return self.FORMAT.pack(self.number, self.rows)

    def check(self, data: bytes | bytearray | memoryview) -> None:
        """Raises `PeerError` unless these are the bytes of this very reply."""
        number, rows = self.FORMAT.unpack(data)
        if (number, rows) != (self.number, self.rows):
            raise PeerError(
                f"a reply of {rows} pages to request {number}; expected: {self.rows} to "
                f"request {self.number}"
            )
