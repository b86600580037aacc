"""The header of a record: little endian, frozen for its version, believed only if its digest holds.

    0     8  "antiphRC"; "antiphR-": the record was removed (not covered by the digest)
    8     2  version, 1
    10    4  codec, rope, element type, 1 if there is a parent
    14    2  length of identity, of tenant
    16    4  bytes of the header, a multiple of 64
    20    4  number of chunks
    24    8  bytes of the whole record, header and chunks
    32    8  page_tokens (2 bytes), further pages of an entry (2), block_tokens (4)
    40    8  page_bytes
    48    4  first head, number of heads
    52    2  length of lineage, 1 if it is sealed
    54    4  length of numerics, of layout
    58    6  name of the key that sealed it, or 0
    64   32  key
    96   32  parent, or 0
    128      identity, tenant, lineage, numerics, layout, then 0 up to a multiple of 8
             a row of four uint64 a chunk: where it begins in the record, its bytes there, its bytes
             when decode_header, XXH3-64 of these
             0 up to the last 16 bytes
    -16  16  BLAKE2b-128 of all from byte 8 on

A chunk of a raw record is a page. One of any other codec has a single chunk, the whole block as
`store/codec` has encoded it, and the checksum is that of the encoded bytes. A sealed one has a
single chunk too, as `RecordSeal` makes it, and no checksum: it would tell of what is sealed, and
the tag proves more. A record of a lossy codec has a lineage: without one it would answer exact
look-ups. The digest binds key, layout and checksums together: what passes is what one writer wrote
for this key. Magic, version and the two sizes stay where they are in all versions.
"""

import struct
from collections.abc import Container
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from hashlib import blake2b
from typing import NamedTuple, Self

from antiphon.errors import BugError

from .kv_origin import ElementType, KvOrigin, RecordedBlock, Rope

LIVE, REMOVED = b"antiphRC", b"antiphR-"
VERSION = 1
ALIGNMENT = 64
"""Headers, and so pages of a shared region too, are multiples of it."""
DIGEST_BYTES = 16
FIXED_BYTES = 128
MOST_CHUNKS = 4096
MOST_RECORD_BYTES = 1 << 32
MOST_NAME_BYTES = 64
"""Of identity, tenant and lineage."""
MOST_TEXT_BYTES = 512
"""Of numerics and layout."""
SEAL_NAME_BYTES = 6
NONCE_BYTES, TAG_BYTES, CHECKSUM_BYTES = 12, 16, 8
"""In a sealed chunk, beside the pages: one nonce, one tag, and a checksum a page."""
MOST_SEALED_BYTES = (1 << 31) - (1 << 16)
"""Of a block's pages: more are not sealed at once."""

_KEY_BYTES = 32
_ROW = struct.Struct("<4Q")
_FIXED = struct.Struct("<8sH4B2B2I Q2IQ2H2B2H6s32s32s")
_NAMES_END = FIXED_BYTES + 3 * MOST_NAME_BYTES + 2 * MOST_TEXT_BYTES
MOST_HEADER_BYTES = _NAMES_END + MOST_CHUNKS * _ROW.size + ALIGNMENT
_PERSON = b"antiphon.rec.1"
_MORE_PAGES = 16
"""The upper bits of the field for `page_tokens`: how many pages more than one an entry has."""


def most_header_bytes(origin: KvOrigin) -> int:
    """No header of a block of this origin is longer."""
    return _NAMES_END + origin.pages_per_block * _ROW.size + ALIGNMENT


class Codec(IntEnum):
    """How chunks are kept. Numbers are frozen."""

    RAW = 0
    LOSSLESS = 1
    INT8 = 2
    INT4 = 3
    ENTROPY = 4

    @property
    def is_exact(self) -> bool:
        """What is decoded is what was encoded, to the bit."""
        return self in (Codec.RAW, Codec.LOSSLESS)


class RecordProblem(StrEnum):
    """Why bytes are no record that can be read here."""

    SHORT = "short"
    """They end before the header does."""
    MAGIC = "magic"
    """They don't begin like a record."""
    VERSION = "version"
    """A record of a version that this reader does not know."""
    LIMIT = "limit"
    """Larger than any record may be."""
    DIGEST = "digest"
    """Not what was written."""
    CONTRADICTION = "contradiction"
    """A digest that holds over fields that can't be true together."""
    CODEC = "codec"


class Peek(NamedTuple):
    """What the first bytes say, before anything of it is believed."""

    header_bytes: int
    record_bytes: int


class Chunk(NamedTuple):
    """One page in a record. `at`: its first byte, counted from the record's."""

    at: int
    stored_bytes: int
    raw_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """What a record says of itself."""

    origin: KvOrigin
    block: RecordedBlock
    chunks: tuple[Chunk, ...] = field(repr=False)
    codec: Codec = Codec.RAW
    removed: bool = False

    @classmethod
    def of(cls, origin: KvOrigin, block: RecordedBlock, checksums: tuple[int, ...]) -> Self:
        """The header of a raw record of pages with these checksums; sealed if the origin is.

        Raises `BugError` for what `unrecordable` names, or another number of checksums.
        """
        problem = unrecordable(origin, block)
        if problem is None and len(checksums) != origin.pages_per_block:
            problem = f"{len(checksums)} checksums for {origin.pages_per_block} pages"
        if problem is not None:
            raise BugError(f"no record can be made: {problem}")
        if origin.sealed_by:
            return cls.of_sealed(origin, block)
        size, first = origin.page_bytes, _header_bytes(origin, block, len(checksums))
        return cls(
            origin=origin,
            block=block,
            chunks=tuple(
                Chunk(first + page * size, size, size, checksum)
                for page, checksum in enumerate(checksums)
            ),
        )

    @classmethod
    def of_encoded(
        cls,
        origin: KvOrigin,
        block: RecordedBlock,
        codec: Codec,
        *,
        stored_bytes: int,
        checksum: int,
    ) -> Self:
        """The header of a record of an encoded block: so many bytes, with that XXH3-64.

        Raises `BugError` for what `unrecordable` names, a raw codec, or a size that no record has.
        """
        problem = unrecordable(origin, block, codec)
        if codec is Codec.RAW:
            problem = "a raw record is one of pages"
        elif origin.sealed_by:
            problem = "encoded blocks are not sealed"
        elif not 0 < stored_bytes <= MOST_RECORD_BYTES - MOST_HEADER_BYTES:
            problem = f"{stored_bytes} encoded bytes"
        if problem is not None:
            raise BugError(f"no record can be made: {problem}")
        at = _header_bytes(origin, block, 1)
        chunk = Chunk(at, stored_bytes, origin.block_bytes, checksum)
        return cls(origin=origin, block=block, chunks=(chunk,), codec=codec)

    @classmethod
    def of_sealed(cls, origin: KvOrigin, block: RecordedBlock) -> Self:
        """The header of a record whose pages only the key `origin.sealed_by` opens.

        Raises `BugError` for what `unrecordable` names, or if there is no such key.
        """
        problem = unrecordable(origin, block) if origin.sealed_by else "no key seals it"
        if problem is not None:
            raise BugError(f"no record can be made: {problem}")
        around = NONCE_BYTES + TAG_BYTES + origin.pages_per_block * CHECKSUM_BYTES
        at, size = _header_bytes(origin, block, 1), origin.block_bytes
        return cls(origin=origin, block=block, chunks=(Chunk(at, size + around, size, 0),))

    @property
    def checksums(self) -> tuple[int, ...]:
        """XXH3-64 of each page."""
        return tuple([chunk.checksum for chunk in self.chunks])

    @property
    def header_bytes(self) -> int:
        """Where the first chunk begins."""
        return _header_bytes(self.origin, self.block, len(self.chunks))

    @property
    def record_bytes(self) -> int:
        """Header and chunks."""
        last = self.chunks[-1]
        return last.at + last.stored_bytes

    def encoded(self) -> bytes:
        """`header_bytes` bytes. The chunks follow them, in order, without gaps."""
        origin, block = self.origin, self.block
        names = _names(origin, block)
        identity, tenant, lineage, numerics, layout = map(len, names)
        fixed = _FIXED.pack(
            REMOVED if self.removed else LIVE,
            VERSION,
            *(self.codec, origin.rope, origin.element, block.parent is not None),
            *(identity, tenant),
            *(self.header_bytes, len(self.chunks), self.record_bytes),
            origin.page_tokens | origin.entry_pages - 1 << _MORE_PAGES,
            *(origin.block_tokens, origin.page_bytes),
            *(origin.first_head, origin.heads),
            *(lineage, bool(origin.sealed_by), numerics, layout),
            origin.sealed_by,
            block.key,
            block.parent or bytes(_KEY_BYTES),
        )
        text = b"".join(names)
        table = b"".join(_ROW.pack(*chunk) for chunk in self.chunks)
        data = fixed + text.ljust(_table_at(len(text)) - FIXED_BYTES, b"\0") + table
        data = data.ljust(self.header_bytes - DIGEST_BYTES, b"\0")
        return data + digest_of(data)


def digest_of(data: bytes | bytearray | memoryview) -> bytes:
    """Of a header without its digest."""
    return blake2b(data[len(LIVE) :], digest_size=DIGEST_BYTES, person=_PERSON).digest()


def unrecordable(origin: KvOrigin, block: RecordedBlock, codec: Codec = Codec.RAW) -> str | None:
    """Why no record can be made of such a block; None: it can."""
    if not codec.is_exact and not block.lineage:
        return f"{codec.name.lower()} is lossy, and there is no lineage that says so"
    if len(block.key) != _KEY_BYTES or len(block.parent or block.key) != _KEY_BYTES:
        return f"keys have {_KEY_BYTES} bytes"
    limits = (MOST_NAME_BYTES,) * 3 + (MOST_TEXT_BYTES,) * 2
    labels = ("identity", "tenant", "lineage", "numerics", "layout")
    for label, name, limit in zip(labels, _names(origin, block), limits, strict=True):
        if len(name) > limit:
            return f"{label} has {len(name)} bytes, at most {limit} are kept"
    return _shape_problem(origin)


def peek(data: bytes | bytearray | memoryview) -> Peek | RecordProblem:
    """How long a record that begins with `data` (at least `FIXED_BYTES`) claims to be."""
    if len(data) < FIXED_BYTES:
        return RecordProblem.SHORT
    fields = _FIXED.unpack_from(data)
    if fields[0] not in (LIVE, REMOVED):
        return RecordProblem.MAGIC
    if fields[1] != VERSION:
        return RecordProblem.VERSION
    header_bytes, record_bytes = fields[8], fields[10]
    if (
        header_bytes % ALIGNMENT
        or not FIXED_BYTES < header_bytes <= MOST_HEADER_BYTES
        or not header_bytes <= record_bytes <= MOST_RECORD_BYTES
    ):
        return RecordProblem.LIMIT
    return Peek(header_bytes, record_bytes)


def decode_header(
    data: bytes | bytearray | memoryview, codecs: Container[int] = (Codec.RAW,)
) -> RecordHeader | RecordProblem:
    """Read a header off the beginning of `data`; raises nothing, whatever the bytes are.

    What is returned is consistent: encoding it gives the same bytes again. `codecs`: those that
    the caller can read.
    """
    sizes = peek(data)
    if isinstance(sizes, RecordProblem):
        return sizes
    if len(data) < sizes.header_bytes:
        return RecordProblem.SHORT
    data = bytes(data[: sizes.header_bytes])
    if digest_of(data[:-DIGEST_BYTES]) != data[-DIGEST_BYTES:]:
        return RecordProblem.DIGEST
    if data[10] not in codecs:
        return RecordProblem.CODEC
    try:
        header = _parsed(data)
    except (ValueError, struct.error):
        return RecordProblem.CONTRADICTION
    problem = (
        unrecordable(header.origin, header.block, header.codec)
        or header.header_bytes != sizes.header_bytes
        or header.encoded() != data
        or _made_again(header) != header.chunks
    )
    return RecordProblem.CONTRADICTION if problem else header


def _made_again(header: RecordHeader) -> tuple[Chunk, ...] | None:
    """The chunks that a writer makes of such a block; None: it makes none."""
    origin, block, chunks = header.origin, header.block, header.chunks
    if origin.sealed_by:
        return RecordHeader.of_sealed(origin, block).chunks if header.codec is Codec.RAW else None
    wanted = origin.pages_per_block if header.codec is Codec.RAW else 1
    stored = chunks[0].stored_bytes
    if len(chunks) != wanted or not 0 < stored <= MOST_RECORD_BYTES - MOST_HEADER_BYTES:
        return None
    if header.codec is Codec.RAW:
        return RecordHeader.of(origin, block, header.checksums).chunks
    one = {"stored_bytes": stored, "checksum": chunks[0].checksum}
    return RecordHeader.of_encoded(origin, block, header.codec, **one).chunks


def _parsed(data: bytes) -> RecordHeader:
    """The fields as they are. `ValueError`, `struct.error`: they can't be."""
    fields = _FIXED.unpack_from(data)
    magic, _, codec, rope, element, has_parent, identity_len, tenant_len = fields[:8]
    _, chunk_count, _, page_tokens, block_tokens, page_bytes, first_head, heads = fields[8:16]
    lineage_len, is_sealed, numerics_len, layout_len, sealed_by, key, parent = fields[16:]
    names, at = [], FIXED_BYTES
    for length in (identity_len, tenant_len, lineage_len, numerics_len, layout_len):
        names.append(data[at : at + length])
        at += length
    identity, tenant, lineage, numerics, layout = names
    table_at = _table_at(at - FIXED_BYTES)
    if not 1 <= chunk_count <= MOST_CHUNKS or table_at + chunk_count * _ROW.size > len(data):
        raise ValueError(chunk_count)
    rows = _ROW.iter_unpack(data[table_at : table_at + chunk_count * _ROW.size])
    return RecordHeader(
        origin=KvOrigin(
            identity=identity,
            layout=layout.decode(),
            page_tokens=page_tokens & (1 << _MORE_PAGES) - 1,
            entry_pages=1 + (page_tokens >> _MORE_PAGES),
            block_tokens=block_tokens,
            page_bytes=page_bytes,
            first_head=first_head,
            heads=heads,
            element=ElementType(element),
            rope=Rope(rope),
            sealed_by=sealed_by if is_sealed else b"",
        ),
        block=RecordedBlock(
            key=key,
            parent=parent if has_parent else None,
            tenant=tenant,
            numerics=numerics.decode(),
            lineage=lineage,
        ),
        chunks=tuple(map(Chunk._make, rows)),
        codec=Codec(codec),
        removed=magic == REMOVED,
    )


def _names(origin: KvOrigin, block: RecordedBlock) -> tuple[bytes, ...]:
    texts = block.numerics.encode(), origin.layout.encode()
    return (origin.identity, block.tenant, block.lineage, *texts)


def _shape_problem(origin: KvOrigin) -> str | None:
    left_over = origin.block_tokens % max(origin.page_tokens, 1)
    if not (0 < origin.page_tokens < 1 << _MORE_PAGES and 0 < origin.entry_pages <= MOST_CHUNKS):
        return f"{origin.page_tokens} tokens in {origin.entry_pages} pages"
    pages = origin.pages_per_block
    if left_over or not 1 <= pages <= MOST_CHUNKS:
        return f"a block of {origin.block_tokens} tokens is not 1 … {MOST_CHUNKS} whole pages"
    if origin.page_bytes < 1 or origin.block_bytes > MOST_RECORD_BYTES - MOST_HEADER_BYTES:
        return f"{pages} pages of {origin.page_bytes} bytes are too many bytes for a record"
    if not (0 <= origin.first_head < 1 << 16 and 0 <= origin.heads < 1 << 16):
        return f"heads {origin.first_head} + {origin.heads}"
    if len(origin.sealed_by) not in (0, SEAL_NAME_BYTES):
        return f"the name of a key has {SEAL_NAME_BYTES} bytes"
    if origin.sealed_by and origin.block_bytes > MOST_SEALED_BYTES:
        return f"{origin.block_bytes} bytes are too many to be sealed, {MOST_SEALED_BYTES} are not"
    if origin.block_tokens >= 1 << 32:
        return f"{origin.block_tokens} tokens a block"
    return None


def _table_at(names_bytes: int) -> int:
    return FIXED_BYTES + -(-names_bytes // 8) * 8


def _header_bytes(origin: KvOrigin, block: RecordedBlock, chunks: int) -> int:
    names_bytes = sum(map(len, _names(origin, block)))
    end = _table_at(names_bytes) + chunks * _ROW.size + DIGEST_BYTES
    return -(-end // ALIGNMENT) * ALIGNMENT
