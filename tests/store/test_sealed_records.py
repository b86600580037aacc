"""Records that are sealed: read with the key that sealed them, a miss with anything else."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import disk_kit
import pytest
from disk_kit import (
    LIMIT_BYTES,
    append,
    drop_count,
    fill,
    read,
    readable,
    segments,
    size_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import ORIGIN, block_of, checksums, key_of, pages_of, record_of, same

from antiphon.errors import BugError
from antiphon.store.disk import DiskMiss, DiskTier
from antiphon.store.record import (
    Codec,
    RecordHeader,
    decode_header,
    new_pages,
    record_seal,
    unrecordable,
)
from antiphon.store.record.record_header import DIGEST_BYTES, digest_of
from antiphon.store.record.record_seal import RecordSeal

SEAL, OTHER = RecordSeal(bytes(range(32))), RecordSeal(bytes(range(1, 33)))
SEALED = SEAL.origin(ORIGIN)


def tier(folder: Path, seal: RecordSeal | None = SEAL, limit_bytes: int = LIMIT_BYTES) -> DiskTier:
    return disk_kit.tier(folder, limit_bytes=limit_bytes, seal=seal)


def sealed(number: int, seal: RecordSeal = SEAL) -> bytes:
    pages = pages_of(number)
    sums = checksums(pages)
    header = RecordHeader.of(seal.origin(ORIGIN), block_of(number), tuple(sums))
    return b"".join(seal.sealed(header, pages, sums))


def opens(record: bytes | bytearray, seal: RecordSeal = SEAL) -> bool:
    """Whether a reader that expects block 0 gets it; then it is the right one."""
    header = decode_header(record)
    if not isinstance(header, RecordHeader) or header.record_bytes != len(record):
        return False
    into, at = new_pages(ORIGIN), header.header_bytes
    good = header.origin == SEALED and seal.opens(record[:at], record[at:], into)
    assert not good or same(into, pages_of(0))
    return good


def forged(record: bytes, change: Callable[[bytearray], None]) -> bytes:
    """With another header, under a digest that holds: whoever can write the file can make it."""
    size = struct.unpack_from("<I", record, 16)[0]
    head = bytearray(record[:size])
    change(head)
    head[-DIGEST_BYTES:] = digest_of(head[:-DIGEST_BYTES])
    return bytes(head) + record[size:]


def folder_with(folder: Path, data: bytes) -> Path:
    folder.mkdir(mode=0o700)
    (folder / "000000000001.kv").write_bytes(data)
    return folder


# ── one record ───────────────────────────────────────────────────────────────────────────────────


def test_a_header_says_that_it_is_sealed_and_tells_nothing_of_pages() -> None:
    record = sealed(0)
    header = decode_header(record)
    assert isinstance(header, RecordHeader)
    assert header == RecordHeader.of_sealed(SEALED, block_of(0))
    assert header.encoded() == record[: header.header_bytes]
    assert (record[53], record[58:64]) == (1, SEAL.name)
    assert header.record_bytes == len(record)
    pages = pages_of(0)
    for secret in [bytes(page)[:8] for page in pages] + [
        value.to_bytes(8, "little") for value in checksums(pages)
    ]:
        assert secret not in record
        assert secret in record_of(0)
    assert opens(record)


def test_no_two_records_have_a_nonce() -> None:
    at = RecordHeader.of_sealed(SEALED, block_of(0)).header_bytes
    assert len({sealed(0)[at : at + 12] for _ in range(100)}) == 100


def test_a_flipped_bit_anywhere_is_a_miss() -> None:
    record = sealed(0)
    for at in range(len(record)):
        changed = bytearray(record)
        changed[at] ^= 1 << at % 8
        assert not opens(changed), at


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_header_that_was_changed_on_purpose_is_a_miss(data: st.DataObject) -> None:
    """Its digest needs no key, so it holds; the tag does not."""
    record = sealed(0)
    size = struct.unpack_from("<I", record, 16)[0]
    at = data.draw(st.integers(8, size - DIGEST_BYTES - 1))
    mask = data.draw(st.integers(1, 255))

    def change(head: bytearray) -> None:
        head[at] ^= mask

    assert opens(forged(record, lambda head: None))
    assert not opens(forged(record, change))


def test_control_a_tag_that_leaves_the_header_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_seal, "_bound", lambda head: b"")
    assert opens(forged(sealed(0), lambda head: head.__setitem__(160, 0)))


def test_a_chunk_of_another_block_or_another_key_is_a_miss() -> None:
    size = RecordHeader.of_sealed(SEALED, block_of(0)).header_bytes
    assert not opens(sealed(0)[:size] + sealed(1)[size:])
    assert not opens(sealed(0)[:size] + sealed(0, OTHER)[size:])
    assert not opens(sealed(0)[:-1])
    assert not opens(sealed(0) + b"\0")
    assert SEAL.name != OTHER.name


def test_nothing_is_written_that_is_not_proved() -> None:
    record, size = bytearray(sealed(0)), RecordHeader.of_sealed(SEALED, block_of(0)).header_bytes
    record[-1] ^= 1
    into = new_pages(ORIGIN)
    assert not SEAL.opens(record[:size], record[size:], into)
    assert not any(page.any() for page in into)


def test_what_can_not_be_is_our_own_bug() -> None:
    with pytest.raises(BugError, match="32 bytes"):
        RecordSeal(bytes(16))
    with pytest.raises(BugError, match="no key"):
        RecordHeader.of_sealed(ORIGIN, block_of(0))
    with pytest.raises(BugError, match="not sealed"):
        RecordHeader.of_encoded(SEALED, block_of(0), Codec.LOSSLESS, stored_bytes=1, checksum=0)
    large = replace(ORIGIN, page_bytes=1 << 30)
    assert unrecordable(large, block_of(0)) is None
    assert "too many to be sealed" in (unrecordable(SEAL.origin(large), block_of(0)) or "")


# ── on disk ──────────────────────────────────────────────────────────────────────────────────────


def test_sealed_blocks_are_read_again_and_after_a_restart(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(6))
    assert readable(disk, range(6)) == list(range(6))
    disk.close()
    data = b"".join(file.read_bytes() for file in segments(tmp_path))
    assert not any(bytes(page)[:16] in data for n in range(6) for page in pages_of(n))
    again = tier(tmp_path)
    assert set(again.recover()) == {block_of(n) for n in range(6)}
    assert again.remove([key_of(0)]) == (key_of(0),)
    again.close()
    third = tier(tmp_path)
    third.recover()
    assert readable(third, range(6)) == [1, 2, 3, 4, 5]


def test_pages_that_were_reassigned_before_they_were_sealed_are_not_given(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    disk.append(block_of(0), pages_of(1), checksums(pages_of(0)))
    assert read(disk, 0) is DiskMiss.DAMAGED


def test_what_was_read_has_its_second_chance_as_it_is(tmp_path: Path) -> None:
    disk = tier(tmp_path, limit_bytes=16 * len(sealed(0)))
    fill(disk, range(4))
    for _ in range(3):
        assert readable(disk, [0]) == [0]
    fill(disk, range(4, 16))
    assert drop_count(disk, "rewritten") >= 1
    assert readable(disk, [0]) == [0]
    disk.close()
    again = tier(tmp_path, limit_bytes=16 * len(sealed(0)))
    again.recover()
    assert readable(again, [0]) == [0]


def test_a_segment_damaged_while_it_runs_costs_the_block_and_is_counted(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(2))
    with segments(tmp_path)[0].open("r+b") as file:
        file.seek(len(sealed(0)) - 1)
        byte = file.read(1)[0]
        file.seek(len(sealed(0)) - 1)
        file.write(bytes([byte ^ 1]))
    assert read(disk, 0) is DiskMiss.DAMAGED
    assert drop_count(disk, "read_damaged") == 1
    assert readable(disk, range(2)) == [1]


def test_a_forged_header_in_a_folder_is_found_and_never_read(tmp_path: Path) -> None:
    """The tenant is another: a record without a seal would be believed."""
    record = forged(sealed(0), lambda head: head.__setitem__(slice(160, 166), b"theirs"))
    disk = tier(folder_with(tmp_path / "kv", record))
    assert [block.tenant for block in disk.recover()] == [b"theirs"]
    assert read(disk, 0) is DiskMiss.DAMAGED


@pytest.mark.parametrize(
    ("first", "second"), [(None, SEAL), (SEAL, None), (SEAL, OTHER)], ids=["seal", "bare", "other"]
)
def test_records_of_another_key_are_unseen_and_kept(
    tmp_path: Path, first: RecordSeal | None, second: RecordSeal | None
) -> None:
    """From plain to sealed and back, and to another key: each finds its own."""
    for seal, number in ((first, 0), (second, 1)):
        disk = tier(tmp_path, seal)
        assert disk.recover() == ()
        assert drop_count(disk, "recover_other_key") == number
        assert readable(disk, range(2)) == []
        append(disk, number)
        disk.close()
    size = size_of(tmp_path)
    for seal, number in ((first, 0), (second, 1)):
        disk = tier(tmp_path, seal)
        assert disk.recover() == (block_of(number),)
        assert readable(disk, range(2)) == [number]
        disk.close()
    assert size_of(tmp_path) == size


def test_records_of_another_key_put_there_while_it_runs_are_misses(tmp_path: Path) -> None:
    for number, strange in enumerate([sealed(0, OTHER), record_of(0).ljust(len(sealed(0)), b"\0")]):
        disk = tier(tmp_path / str(number))
        fill(disk, range(1))
        segments(tmp_path / str(number))[0].write_bytes(strange)
        assert read(disk, 0) is DiskMiss.DAMAGED
