"""An encoded block as bytes: a header that says all that decoding needs, then the payload.

    0     8  "antiphKC"
    8     2  version, 1
    10    3  codec (as in a record), its level, element type (as in a record)
    13    1  tokens at the block's beginning that are kept as they are
    14   10  pages, layers, heads, page_tokens, width
    24    4  0
    28    4  position of the first token
    32    8  bytes of the payload
    40   16  id of the profile, or 0
    56    8  XXH3-64 of all bytes, with these eight 0
    64       the payload, then 0 up to a multiple of 64, at least 256 bytes in all

Little endian. Whoever can write bytes can write a checksum: it finds damage, not malice, and what
follows from a payload that was made on purpose is bounded by its decoder.
"""

import struct
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError
from antiphon.store.record import Codec, ElementType
from antiphon.store.transfer import LEAST_BYTES, STRIPE_BYTES
from antiphon.store.transfer.xxh3 import hashing

from .block_shape import BlockShape
from .kernel import kernel
from .level import MOST_LEVELS, Level

MAGIC = b"antiphKC"
VERSION = 1
HEADER_BYTES = 64
PROFILE_ID_BYTES = 16
MOST_POSITION = 1 << 31
_CHECKSUM_AT = 56
_HEADER = struct.Struct("<8sH4B5H4xIQ16sQ")
_hash_of = hashing(copies=False)


class DecodeProblem(StrEnum):
    """Why bytes are no block that can be decoded here."""

    SHORT = "short"
    """They end too early."""
    MAGIC = "magic"
    """They don't begin like an encoded block."""
    VERSION = "version"
    """Of a version that this reader does not know."""
    CHECKSUM = "checksum"
    """Not what was written."""
    CONTRADICTION = "contradiction"
    """A checksum that holds over fields, or a payload, that can't be."""
    SHAPE = "shape"
    """A block, but not one of the shape or the numbers that are wanted."""
    PROFILE = "profile"
    """It was encoded with another profile, or a level that this one does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """An encoded block. `profile`: an id, or 16 zero bytes."""

    level: Level
    shape: BlockShape
    start: int
    payload: bytes | memoryview = field(repr=False)
    profile: bytes = bytes(PROFILE_ID_BYTES)
    kept_tokens: int = 0

    def encoded(self) -> bytes:
        """All of it, a multiple of 64 bytes."""
        size = max(
            -(-(HEADER_BYTES + len(self.payload)) // STRIPE_BYTES) * STRIPE_BYTES, LEAST_BYTES
        )
        room = _aligned(size)
        shape = self.shape
        _HEADER.pack_into(
            room.data,
            0,
            *(MAGIC, VERSION, self.level.codec, self.level.number, shape.element),
            self.kept_tokens,
            *shape.numbers,
            *(self.start, len(self.payload), self.profile, 0),
        )
        end = HEADER_BYTES + len(self.payload)
        room[HEADER_BYTES:end] = np.frombuffer(self.payload, np.uint8)
        room[end:] = 0
        room[_CHECKSUM_AT:HEADER_BYTES].view(np.uint64)[0] = _hashed(room.ctypes.data, size)
        return room.tobytes()


def read_blob(data: bytes | bytearray | memoryview) -> Blob | DecodeProblem:
    """What the bytes are. They are copied once; raises nothing, whatever they are."""
    if len(data) < LEAST_BYTES:
        return DecodeProblem.SHORT
    magic, version, *numbers, start, payload_bytes, profile, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return DecodeProblem.MAGIC
    if version != VERSION:
        return DecodeProblem.VERSION
    if len(data) % STRIPE_BYTES:
        return DecodeProblem.SHORT
    room = _aligned(len(data))
    room[:] = np.frombuffer(data, np.uint8)
    room[_CHECKSUM_AT:HEADER_BYTES] = 0
    if _hashed(room.ctypes.data, len(room)) != checksum:
        return DecodeProblem.CHECKSUM
    end = HEADER_BYTES + payload_bytes
    if not end <= len(data) < max(end + STRIPE_BYTES, LEAST_BYTES + 1) or start >= MOST_POSITION:
        return DecodeProblem.CONTRADICTION
    codec, number, element, kept, *sides = numbers
    try:
        level = Level(Codec(codec), number)
        pages, layers, heads, page_tokens, width = sides
        shape = BlockShape(
            pages=pages,
            layers=layers,
            heads=heads,
            page_tokens=page_tokens,
            width=width,
            element=ElementType(element),
        )
    except ValueError:
        return DecodeProblem.CONTRADICTION
    levels = range(1, MOST_LEVELS + 1) if level.needs_profile else (0,)
    if number not in levels or not shape.is_possible or kept > shape.tokens:
        return DecodeProblem.CONTRADICTION
    payload = memoryview(room.data)[HEADER_BYTES:end]
    return Blob(
        level=level, shape=shape, start=start, payload=payload, profile=profile, kept_tokens=kept
    )


def checksum_of(data: bytes | bytearray | memoryview) -> int:
    """XXH3-64 of an encoded block, as a record's header has it. `BugError`: it can't be one."""
    if len(data) % STRIPE_BYTES or len(data) < LEAST_BYTES:
        raise BugError(f"an encoded block is not of {len(data)} bytes")
    room = _aligned(len(data))
    room[:] = np.frombuffer(data, np.uint8)
    return int(_hashed(room.ctypes.data, len(room)))


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    """Memory that the checksum can be taken of."""
    memory = np.empty(size + STRIPE_BYTES, np.uint8)
    first = -memory.ctypes.data % STRIPE_BYTES
    return memory[first : first + size]


@kernel
def _hashed(at, size):
    """XXH3-64 of bytes, without the interpreter lock."""
    return _hash_of(at, size)
