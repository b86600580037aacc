"""Records of encoded blocks: a header says which codec, and no lossy one is without lineage."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import BugError
from antiphon.store.codec import RAW, Level, checksum_of, decode, encode
from antiphon.store.record import (
    Codec,
    KvOrigin,
    RecordedBlock,
    RecordHeader,
    RecordProblem,
    decode_header,
)
from codec_kit import LEVELS, block_of, profile, profile_for

CODED = [level for level in LEVELS if level != RAW]
ORIGIN = KvOrigin(
    identity=b"model",
    layout="page",
    page_tokens=16,
    block_tokens=64,
    page_bytes=block_of(0)[0].nbytes,
)


def record_of(level: Level) -> tuple[RecordHeader, bytes]:
    data = encode(block_of(4), level, profile=profile_for(level)) or b""
    block = RecordedBlock(key=bytes(32), parent=None, lineage=level.lineage(profile().id))
    header = RecordHeader.of_encoded(
        ORIGIN, block, level.codec, stored_bytes=len(data), checksum=checksum_of(data)
    )
    return header, header.encoded() + data


@pytest.mark.parametrize("level", CODED, ids=lambda level: level.name)
def test_an_encoded_block_is_a_record(level: Level) -> None:
    header, record = record_of(level)
    assert header.record_bytes == len(record)
    assert decode_header(record) is RecordProblem.CODEC
    found = decode_header(record, tuple(Codec))
    assert found == header
    [chunk] = header.chunks
    data = record[chunk.at : chunk.at + chunk.stored_bytes]
    assert checksum_of(data) == chunk.checksum
    room = np.zeros_like(block_of(4))
    assert chunk.raw_bytes == room.nbytes
    assert decode(data, room, profile=profile()) is None


@pytest.mark.parametrize("codec", [Codec.INT8, Codec.INT4, Codec.ENTROPY])
def test_a_lossy_record_without_lineage_is_none(codec: Codec) -> None:
    block = RecordedBlock(key=bytes(32), parent=None)
    with pytest.raises(BugError, match="lineage"):
        RecordHeader.of_encoded(ORIGIN, block, codec, stored_bytes=256, checksum=0)
    header, _ = record_of(next(level for level in CODED if level.codec is codec))
    exact = replace(header, block=replace(header.block, lineage=b""))
    assert decode_header(exact.encoded(), tuple(Codec)) is RecordProblem.CONTRADICTION


@given(st.data(), st.sampled_from(CODED))
@settings(deadline=None, max_examples=60)
def test_no_change_of_a_header_goes_unseen(data: st.DataObject, level: Level) -> None:
    header, record = record_of(level)
    place = data.draw(st.integers(8, header.header_bytes - 1))
    changed = bytearray(record)
    changed[place] ^= data.draw(st.integers(1, 255))
    assert isinstance(decode_header(bytes(changed), tuple(Codec)), RecordProblem)


def test_a_header_that_contradicts_itself_is_refused() -> None:
    header, _ = record_of(CODED[0])
    chunk = header.chunks[0]
    for wrong in (
        chunk._replace(stored_bytes=0),
        chunk._replace(raw_bytes=1),
        chunk._replace(at=chunk.at + 64),
    ):
        assert isinstance(
            decode_header(replace(header, chunks=(wrong,)).encoded(), tuple(Codec)), RecordProblem
        )
    with pytest.raises(BugError, match="raw record"):
        RecordHeader.of_encoded(ORIGIN, header.block, Codec.RAW, stored_bytes=1, checksum=0)
