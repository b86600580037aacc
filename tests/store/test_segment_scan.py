"""Segments that somebody has edited: the scan ends, raises nothing, finds only what is whole."""

import os
import tempfile
from pathlib import Path

from disk_kit import FaultyDisk, readable, segments, tier
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import header_of, key_of, record_of

from antiphon.store.disk.disk_calls import DiskCalls
from antiphon.store.disk.segment_scan import Scan, scan
from antiphon.store.record import ALIGNMENT, LIVE, REMOVED, RecordProblem

RECORDS = [record_of(number) for number in range(5)]
SIZE = len(RECORDS[0])


def scanned(data: bytes, calls: DiskCalls | None = None) -> Scan:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(data)
        return scan(calls or DiskCalls(), file.fileno(), len(data))


def test_whole_records_are_found_where_they_are() -> None:
    found = scanned(b"".join(RECORDS))
    assert [(record.at, record.header) for record in found.records] == [
        (number * SIZE, header_of(number)) for number in range(5)
    ]
    assert found.end == 5 * SIZE
    assert not found.skipped


def test_an_empty_segment_has_nothing() -> None:
    assert scanned(b"") == Scan()


def test_behind_damage_it_goes_on_at_the_next_record() -> None:
    damaged = bytearray(RECORDS[1])
    damaged[20] ^= 1
    found = scanned(RECORDS[0] + bytes(damaged) + RECORDS[2])
    assert [record.at for record in found.records] == [0, 2 * SIZE]
    assert found.skipped == {RecordProblem.DIGEST: 1}


def test_a_record_in_the_pages_of_another_is_not_found() -> None:
    """A whole header is believed, with its size, so that nothing inside of a record is one."""
    outer = bytearray(RECORDS[0] + RECORDS[1])
    inner = header_of(4).encoded()
    at = SIZE - 1024
    outer[at : at + len(inner)] = inner
    assert [record.at for record in scanned(bytes(outer)).records] == [0, SIZE]


def test_records_are_looked_for_at_multiples_of_their_alignment_only() -> None:
    assert scanned(b"x" * 32 + RECORDS[0]).records == []
    assert [r.at for r in scanned(b"x" * ALIGNMENT + RECORDS[0]).records] == [ALIGNMENT]


def test_a_gap_longer_than_one_search() -> None:
    gap = bytes((1 << 20) + ALIGNMENT)
    found = scanned(RECORDS[0] + gap + RECORDS[1] + gap)
    assert [record.at for record in found.records] == [0, SIZE + len(gap)]
    assert found.end == 2 * SIZE + len(gap)


def test_reads_that_end_early_are_continued() -> None:
    calls = FaultyDisk()
    calls.most_bytes = 7
    assert len(scanned(b"".join(RECORDS[:2]), calls).records) == 2


pieces = st.one_of(
    st.sampled_from(RECORDS),
    st.sampled_from([record[:300] for record in RECORDS] + [record[-1024:] for record in RECORDS]),
    st.sampled_from([LIVE, REMOVED, LIVE + b"\1\0", bytes(64), b"\xff" * 64]),
    st.binary(max_size=200),
    st.sampled_from(RECORDS).map(lambda record: REMOVED + record[len(REMOVED) :]),
)
edits = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4)


@settings(deadline=None, max_examples=300)
@given(st.lists(pieces, max_size=8), edits, st.booleans())
def test_whatever_lies_there_only_right_blocks_are_given(
    parts: list[bytes], changes: list[tuple[int, int]], align: bool
) -> None:
    """LMCache 4385, 4991, 2757: bytes from a disk were believed."""
    data = bytearray()
    for part in parts:
        data += part
        if align:
            data += bytes(-len(data) % ALIGNMENT)
    for at, value in changes:
        if data:
            data[at % len(data)] = value
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "000000000001.kv").write_bytes(data)
        disk = tier(folder)
        found = disk.recover()
        good = readable(disk, range(5))
        assert {key_of(number) for number in good} <= {block.key for block in found}
        if align and not changes and all(len(part) == SIZE for part in parts):
            last = {record[8:]: record[:8] for record in parts}
            there = [n for n in range(5) if last.get(RECORDS[n][8:]) == LIVE]
            assert good == there
        disk.close()
        again = tier(folder)
        again.recover()
        assert readable(again, range(5)) == good
        again.close()
        assert all(os.access(file, os.R_OK) for file in segments(folder))
