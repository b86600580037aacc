"""The record's header: frozen bytes, exact round trips, and a reader that nothing upsets."""

import json
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import ORIGIN, block_of, header_of, key_of

from antiphon.errors import BugError
from antiphon.store.record import (
    ALIGNMENT,
    FIXED_BYTES,
    MOST_HEADER_BYTES,
    REMOVED,
    ElementType,
    KvOrigin,
    Peek,
    RecordedBlock,
    RecordHeader,
    RecordProblem,
    Rope,
    decode_header,
    peek,
    unrecordable,
)
from antiphon.store.record.record_header import (
    DIGEST_BYTES,
    MOST_CHUNKS,
    MOST_RECORD_BYTES,
    digest_of,
)
from antiphon.types import KvShape

VECTORS = json.loads((Path(__file__).parent / "record_vectors.json").read_text())
DECODE_SETTINGS = settings(deadline=None, max_examples=300)

names = st.binary(max_size=64)
texts = st.text(max_size=100)
words = st.integers(0, 2**64 - 1)


@st.composite
def headers(draw: st.DrawFn) -> RecordHeader:
    pages = draw(st.integers(1, 20))
    page_tokens = draw(st.integers(1, 64))
    origin = KvOrigin(
        identity=draw(names),
        layout=draw(texts),
        page_tokens=page_tokens,
        block_tokens=page_tokens * pages,
        entry_pages=draw(st.sampled_from([1, 1, 2, 7])),
        page_bytes=draw(st.integers(1, 2**24)),
        first_head=draw(st.integers(0, 2**16 - 1)),
        heads=draw(st.integers(0, 2**16 - 1)),
        element=draw(st.sampled_from(ElementType)),
        rope=draw(st.sampled_from(Rope)),
    )
    key = st.binary(min_size=32, max_size=32)
    block = RecordedBlock(
        key=draw(key),
        parent=draw(st.none() | key),
        tenant=draw(names),
        numerics=draw(texts),
        lineage=draw(names),
    )
    chunks = origin.pages_per_block
    return RecordHeader.of(
        origin, block, tuple(draw(st.lists(words, min_size=chunks, max_size=chunks)))
    )


# ── frozen bytes ─────────────────────────────────────────────────────────────────────────────────


def from_vector(vector: dict) -> RecordHeader:
    origin, block = dict(vector["origin"]), dict(vector["block"])
    return RecordHeader.of(
        KvOrigin(
            **origin
            | {
                "identity": bytes.fromhex(origin["identity"]),
                "element": ElementType[origin["element"]],
                "rope": Rope[origin["rope"]],
            }
        ),
        RecordedBlock(
            key=bytes.fromhex(block["key"]),
            parent=bytes.fromhex(block["parent"]) if block["parent"] else None,
            tenant=bytes.fromhex(block["tenant"]),
            numerics=block["numerics"],
            lineage=bytes.fromhex(block["lineage"]),
        ),
        tuple(vector["checksums"]),
    )


@pytest.mark.parametrize("name", VECTORS)
def test_version_1_is_these_bytes_for_ever(name: str) -> None:
    """LMCache 4463: an engine that changed its layout read old bytes as if they were its own."""
    frozen = bytes.fromhex(VECTORS[name]["header"])
    header = from_vector(VECTORS[name])
    assert header.encoded() == frozen
    assert decode_header(frozen) == header


def test_numbers_of_choices_are_frozen() -> None:
    assert {rope.name: int(rope) for rope in Rope} == {"AFTER": 1, "BEFORE": 2}
    assert {e.name: int(e) for e in ElementType} == {
        "IN_LAYOUT": 0,
        "FP32": 1,
        "BF16": 2,
        "FP16": 3,
        "INT8": 4,
    }


# ── round trips ──────────────────────────────────────────────────────────────────────────────────


@DECODE_SETTINGS
@given(headers(), st.binary(max_size=200))
def test_what_is_written_is_read(header: RecordHeader, following: bytes) -> None:
    data = header.encoded()
    assert len(data) == header.header_bytes
    assert len(data) % ALIGNMENT == 0
    assert peek(data) == Peek(header.header_bytes, header.record_bytes)
    assert decode_header(data + following) == header
    assert decode_header(memoryview(data)) == header


def test_a_removed_record_differs_in_its_magic_only() -> None:
    header = header_of(1)
    data = REMOVED + header.encoded()[len(REMOVED) :]
    assert decode_header(data) == replace(header, removed=True)
    assert replace(header, removed=True).encoded() == data


def test_the_longest_header_is_the_limit() -> None:
    origin = replace(
        ORIGIN, identity=b"i" * 64, layout="l" * 512, page_tokens=1, block_tokens=MOST_CHUNKS
    )
    block = block_of(1, tenant=b"t" * 64, lineage=b"l" * 64, numerics="n" * 512)
    data = RecordHeader.of(origin, block, tuple(range(MOST_CHUNKS))).encoded()
    assert len(data) == MOST_HEADER_BYTES
    assert isinstance(decode_header(data), RecordHeader)


def test_chunks_lie_aligned_without_gaps() -> None:
    header = header_of(1)
    assert [chunk.at for chunk in header.chunks] == [header.header_bytes, header.header_bytes + 512]
    assert header.record_bytes == header.header_bytes + 1024


def test_the_origin_of_a_worker_is_its_shape_and_model() -> None:
    shape = KvShape(layout="l", page_tokens=16, block_tokens=64, page_bytes=1024, pages=9)
    origin = KvOrigin.of(shape, b"model")
    assert (origin.identity, origin.layout, origin.page_bytes) == (b"model", "l", 1024)
    assert (origin.pages_per_block, origin.block_bytes) == (4, 4096)


# ── what can't be written ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("origin", "block"),
    [
        ({"identity": b"i" * 65}, {}),
        ({"layout": "é" * 257}, {}),
        ({"page_tokens": 0}, {}),
        ({"page_tokens": 24}, {}),
        ({"page_tokens": 64}, {}),
        ({"page_tokens": 1, "block_tokens": MOST_CHUNKS + 1}, {}),
        ({"page_bytes": 0}, {}),
        ({"page_bytes": MOST_RECORD_BYTES}, {}),
        ({"heads": 2**16}, {}),
        ({"first_head": -1}, {}),
        ({"page_tokens": 2**31, "block_tokens": 2**32}, {}),
        ({}, {"tenant": b"t" * 65}),
        ({}, {"lineage": b"t" * 65}),
        ({}, {"numerics": "n" * 513}),
        ({}, {"key": b"short"}),
        ({}, {"parent": b"short"}),
    ],
)
def test_no_record_is_made_of_what_would_not_fit(origin: dict, block: dict) -> None:
    made = replace(ORIGIN, **origin), block_of(1, **block)
    assert unrecordable(*made) is not None
    with pytest.raises(BugError, match="no record can be made"):
        RecordHeader.of(*made, (0,) * 2)


def test_a_checksum_for_each_page() -> None:
    with pytest.raises(BugError, match="3 checksums for 2 pages"):
        RecordHeader.of(ORIGIN, block_of(1), (1, 2, 3))


# ── a reader that believes nothing ───────────────────────────────────────────────────────────────


def test_cut_anywhere_it_is_short_or_none_at_all() -> None:
    data = header_of(1).encoded()
    for length in range(len(data)):
        assert decode_header(data[:length]) is RecordProblem.SHORT


def test_every_flipped_bit_is_seen() -> None:
    """LMCache 4385: the disk tier returned another request's KV, silently."""
    header = header_of(1)
    data = header.encoded()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(decode_header(damaged), RecordProblem), bit


def resealed(data: bytearray) -> bytes:
    """With a digest that holds: what a hostile writer can make."""
    data[-DIGEST_BYTES:] = digest_of(bytes(data[:-DIGEST_BYTES]))
    return bytes(data)


@pytest.mark.parametrize(
    ("at", "field", "value", "problem"),
    [
        (8, "<H", 2, RecordProblem.VERSION),
        (10, "<B", 1, RecordProblem.CODEC),
        (10, "<B", 200, RecordProblem.CODEC),
        (11, "<B", 0, RecordProblem.CONTRADICTION),
        (12, "<B", 77, RecordProblem.CONTRADICTION),
        (13, "<B", 0, RecordProblem.CONTRADICTION),
        (13, "<B", 3, RecordProblem.CONTRADICTION),
        (14, "<B", 255, RecordProblem.CONTRADICTION),
        (16, "<I", MOST_HEADER_BYTES + ALIGNMENT, RecordProblem.LIMIT),
        (16, "<I", 65, RecordProblem.LIMIT),
        (16, "<I", 0, RecordProblem.LIMIT),
        (20, "<I", 0, RecordProblem.CONTRADICTION),
        (20, "<I", 1, RecordProblem.CONTRADICTION),
        (20, "<I", 2**32 - 1, RecordProblem.CONTRADICTION),
        (24, "<Q", 2**63, RecordProblem.LIMIT),
        (24, "<Q", 64, RecordProblem.LIMIT),
        (24, "<Q", MOST_RECORD_BYTES, RecordProblem.CONTRADICTION),
        (32, "<I", 0, RecordProblem.CONTRADICTION),
        (32, "<I", 5, RecordProblem.CONTRADICTION),
        (36, "<I", 2**32 - 1, RecordProblem.CONTRADICTION),
        (40, "<Q", 0, RecordProblem.CONTRADICTION),
        (40, "<Q", 2**64 - 1, RecordProblem.CONTRADICTION),
        (53, "<B", 1, RecordProblem.CONTRADICTION),
        (54, "<H", 2**16 - 1, RecordProblem.CONTRADICTION),
        (58, "<B", 1, RecordProblem.CONTRADICTION),
    ],
)
def test_fields_that_contradict_each_other_under_a_good_digest(
    at: int, field: str, value: int, problem: RecordProblem
) -> None:
    data = bytearray(header_of(1).encoded())
    struct.pack_into(field, data, at, value)
    assert decode_header(resealed(data)) is problem


def test_chunks_that_overlap_or_leave_the_record_contradict() -> None:
    header = header_of(1)
    table_at = header.header_bytes
    data = bytearray(header.encoded())
    table_at = data.index(struct.pack("<Q", header.chunks[0].at), FIXED_BYTES)
    for column, value in [(0, 0), (0, 64), (0, 2**64 - 1), (1, 0), (1, 2**63), (2, 511)]:
        changed = bytearray(data)
        struct.pack_into("<Q", changed, table_at + 8 * column, value)
        assert decode_header(resealed(changed)) is RecordProblem.CONTRADICTION


def test_text_that_is_none_contradicts() -> None:
    data = bytearray(header_of(1).encoded())
    at = data.index(b"cpu-test")
    data[at] = 0xFF
    assert decode_header(resealed(data)) is RecordProblem.CONTRADICTION


@DECODE_SETTINGS
@given(st.binary(max_size=2000))
def test_random_bytes_are_no_record(data: bytes) -> None:
    assert isinstance(decode_header(data), RecordProblem)
    assert isinstance(decode_header(header_of(1).encoded()[:8] + data), RecordProblem)


@DECODE_SETTINGS
@given(headers(), st.data())
def test_mutations_under_a_good_digest_give_a_consistent_header_or_a_problem(
    header: RecordHeader, data: st.DataObject
) -> None:
    """Whoever can compute digests can at most say consistent things."""
    changed = bytearray(header.encoded())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    read = decode_header(resealed(changed))
    if isinstance(read, RecordHeader):
        assert read.encoded() == bytes(changed[: read.header_bytes])
        assert unrecordable(read.origin, read.block) is None
        assert read.chunks[0].at == read.header_bytes
        assert read.record_bytes <= MOST_RECORD_BYTES
        ends = [chunk.at + chunk.stored_bytes for chunk in read.chunks]
        assert [chunk.at for chunk in read.chunks[1:]] == ends[:-1]


def test_sizes_that_are_claimed_are_not_allocated() -> None:
    """LMCache 926: whoever could write to the store decided what its readers did."""
    data = bytearray(header_of(1).encoded())
    struct.pack_into("<I", data, 20, MOST_CHUNKS)
    struct.pack_into("<Q", data, 24, MOST_RECORD_BYTES)
    struct.pack_into("<Q", data, 40, 2**31)
    sealed = resealed(data)
    tracemalloc.start()
    try:
        assert decode_header(sealed) is RecordProblem.CONTRADICTION
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_keys_are_bound_to_checksums() -> None:
    """The checksums of one record under the key of another: the digest does not hold."""
    one, other = header_of(1).encoded(), header_of(2).encoded()
    mixed = one[:64] + key_of(2) + one[96:]
    assert decode_header(mixed) is RecordProblem.DIGEST
    assert decode_header(other[:-200] + one[-200:]) is RecordProblem.DIGEST
