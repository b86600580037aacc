"""Frames: how messages are told apart on a stream of bytes.

    ┌────────────┬────────────┬─────────┬────────────┬───────────────┐
    │ length u32 │ version u8 │ kind u8 │ number u32 │ payload       │   all big endian
    └────────────┴────────────┴─────────┴────────────┴───────────────┘
                                                      `length` bytes

Length, version and kind stay where they are in every version, so that two programs of different
versions can at least say so. `number` pairs an answer with its call; 0 where nobody waits for one.
The reader looks at a header before it keeps a byte of the payload: it never holds more than the
longest frame that may come, plus what one read of the socket brought.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct

from antiphon.errors import PeerError

PROTOCOL_VERSION = 1

_HEADER = Struct("!IBBI")
HEADER_BYTES = _HEADER.size
MAX_NUMBER = 2**32 - 1


class FrameError(PeerError):
    """What came can't be a frame of this stream, or its payload is not of its kind."""


class OtherVersionError(FrameError):
    """The other side speaks another version of the protocol."""

    def __init__(self, version: int) -> None:
        super().__init__(f"it speaks protocol version {version}, this one {PROTOCOL_VERSION}")
        self.version = version


@dataclass(frozen=True, slots=True)
class Frame:
    """One message, not decoded yet."""

    kind: int
    number: int
    payload: bytes


def pack_frame(frame: Frame, version: int = PROTOCOL_VERSION) -> bytes:
    """The bytes of a frame."""
    head = _HEADER.pack(len(frame.payload), version, frame.kind, frame.number)
    return head + frame.payload


class FrameReader:
    """Cuts what a socket brings into frames. `max_bytes` names the kinds that may come here, and
    the longest payload of each. Does no I/O.
    """

    def __init__(self, max_bytes: Mapping[int, int]) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._missing = 0

    @property
    def within_frame(self) -> bool:
        """Whether the bytes so far end within a frame: a stream that ends now was cut."""
        return bool(self._rest)

    @property
    def missing(self) -> int:
        """So many bytes more, and a frame, or its header, is whole: at least 1."""
        return max(self._missing, HEADER_BYTES) - len(self._rest)

    def widen(self, max_bytes: Mapping[int, int]) -> None:
        """From the next header on, these may come. May be called between two frames of `feed`."""
        self._max_bytes = max_bytes

    def also(self, max_bytes: Mapping[int, int]) -> None:
        """As `widen`, besides what may come already."""
        self.widen({**self._max_bytes, **max_bytes})

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Iterate to the end before the next call.

        Raises `FrameError` at the first header that is not acceptable, after all frames before it
        came; the reader is of no use then. The result is the same however the bytes are cut.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._missing:
                return
            data = bytes(self._rest)
            self._rest = bytearray()
        at = 0
        while len(data) - at >= HEADER_BYTES:
            length, version, kind, number = _HEADER.unpack_from(data, at)
            self._check(length, version, kind)
            end = at + HEADER_BYTES + length
            if end > len(data):
                self._missing = end - at
                break
            yield Frame(kind, number, data[at + HEADER_BYTES : end])
            at = end
        else:
            self._missing = HEADER_BYTES
        self._rest += data[at:]

    def feed_one(self, data: bytes) -> Frame | None:
        """Like `feed` where one frame may come and then nothing. None: it is not whole yet."""
        frames = list(self.feed(data))
        if len(frames) > 1 or (frames and self.within_frame):
            raise FrameError("more came than one message")
        return frames[0] if frames else None

    def _check(self, length: int, version: int, kind: int) -> None:
        if version != PROTOCOL_VERSION:
            raise OtherVersionError(version)
        most = self._max_bytes.get(kind)
        if most is None:
            raise FrameError(f"a message of kind {kind} may not come here")
        if length > most:
            raise FrameError(f"a message of kind {kind} has {length} bytes, at most {most} may be")
