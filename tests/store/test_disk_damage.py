"""A disk tier's files are cut, damaged, swapped, deleted: blocks are lost, and never wrong."""

from dataclasses import replace
from pathlib import Path

import pytest
from disk_kit import (
    LIMIT_BYTES,
    RECORD_BYTES,
    append,
    drop_count,
    fill,
    read,
    readable,
    recovered,
    segments,
    size_of,
    tier,
)
from record_kit import ORIGIN, block_of, header_of, key_of, record_of

from antiphon.store.disk import Appended, DiskMiss
from antiphon.store.record import MOST_HEADER_BYTES, VERSION

HEADER_BYTES = header_of(1).header_bytes


def folder_with(tmp_path: Path, name: str, *files: bytes) -> Path:
    """A folder of a tier with these segments."""
    folder = tmp_path / name
    folder.mkdir(mode=0o700)
    for number, data in enumerate(files, 1):
        (folder / f"{number:012}.kv").write_bytes(data)
    return folder


def test_a_segment_cut_anywhere_has_the_records_before_the_cut(tmp_path: Path) -> None:
    """LMCache 4991: a failed write stayed visible, and its readers got garbage."""
    data = record_of(0) + record_of(1) + record_of(2)
    near = {at + by for at in range(0, len(data), RECORD_BYTES) for by in range(-3, 4)}
    sizes = near | {at + HEADER_BYTES for at in range(0, len(data), RECORD_BYTES)}
    sizes |= set(range(0, len(data), 37))
    for size in sorted(size for size in sizes if 0 <= size <= len(data)):
        folder = folder_with(tmp_path, f"cut-{size}", data[:size])
        whole = size // RECORD_BYTES
        assert recovered(folder) == list(range(whole)), size
        left = size_of(folder)
        assert left == whole * RECORD_BYTES or (whole == 0 and left < HEADER_BYTES)


def test_every_cut_of_a_header(tmp_path: Path) -> None:
    data = record_of(0) + record_of(1)
    for size in range(RECORD_BYTES, RECORD_BYTES + HEADER_BYTES, 3):
        folder = folder_with(tmp_path, f"cut-{size}", data[:size])
        assert recovered(folder) == [0]
        assert size_of(folder) == RECORD_BYTES


def test_a_flipped_byte_anywhere_costs_one_block_at_most(tmp_path: Path) -> None:
    """LMCache 4385: the disk tier returned another request's KV, silently."""
    data = record_of(0) + record_of(1) + record_of(2)
    within = [*range(0, HEADER_BYTES, 3), *range(HEADER_BYTES, RECORD_BYTES, 97), RECORD_BYTES - 1]
    for at in (RECORD_BYTES + by for by in within):
        changed = bytearray(data)
        changed[at] ^= 0x10
        folder = folder_with(tmp_path, f"flip-{at}", bytes(changed))
        assert recovered(folder) == [0, 2], at
        assert recovered(folder) == [0, 2], at  # and it stays like that


def test_a_flipped_byte_while_it_runs(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(4))
    for number, within in enumerate([3, 70, HEADER_BYTES, RECORD_BYTES - 1]):
        with segments(tmp_path)[0].open("r+b") as file:
            file.seek(number * RECORD_BYTES + within)
            byte = file.read(1)[0]
            file.seek(number * RECORD_BYTES + within)
            file.write(bytes([byte ^ 1]))
        assert read(disk, number) is DiskMiss.DAMAGED
        assert read(disk, number) is DiskMiss.ABSENT
    assert drop_count(disk, "read_damaged") == 4


def test_swapped_and_renamed_segments_are_found_where_they_are(tmp_path: Path) -> None:
    """LMCache 1690: the index said that a key was there, and something else lay there."""
    first, second = record_of(0) + record_of(1), record_of(2)
    assert recovered(folder_with(tmp_path, "swapped", second, first)) == [0, 1, 2]
    folder = folder_with(tmp_path, "renamed", first)
    (folder / "000000000001.kv").rename(folder / "000000000077.kv")
    assert recovered(folder) == [0, 1]
    disk = tier(folder)
    fill(disk, [5])
    assert (folder / "000000000078.kv").exists()


def test_segments_that_are_swapped_while_it_runs_miss_and_lose_nothing(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(8))
    one, two = segments(tmp_path)
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)
    assert readable(disk, range(8)) == []
    disk.close()
    assert recovered(tmp_path) == list(range(8))


def test_a_record_in_the_place_of_another_is_a_miss(tmp_path: Path) -> None:
    """Mooncake 4153: partial matches of hashes reused a wrong prefix."""
    disk = tier(tmp_path)
    fill(disk, range(2))
    with segments(tmp_path)[0].open("r+b") as file:
        file.write(record_of(1) + record_of(0))
    assert readable(disk, range(2)) == []


def test_a_deleted_file_is_a_miss(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(8))
    segments(tmp_path)[0].unlink()
    assert readable(disk, range(8)) == [4, 5, 6, 7]
    fill(disk, range(8, 300))
    assert size_of(tmp_path) <= LIMIT_BYTES


def test_what_was_deleted_is_lost_once_and_written_anew(tmp_path: Path) -> None:
    """The whole folder was emptied: blocks went on into a file without a name."""
    disk = tier(tmp_path)
    fill(disk, range(6))
    assert disk.lose_deleted() == ()
    for file in segments(tmp_path):
        file.unlink()
    assert set(disk.lose_deleted()) == {key_of(n) for n in range(6)}
    assert disk.lose_deleted() == ()
    assert (disk.stats().blocks, disk.stats().used_bytes) == (0, 0)
    assert dict(disk.stats().dropped) == {"lost": 6}
    fill(disk, range(6))
    assert readable(disk, range(6)) == list(range(6))
    disk.close()
    assert len(recovered(tmp_path)) == 6


@pytest.mark.parametrize("which", [0, -1])
def test_a_write_notices_a_deleted_file(tmp_path: Path, which: int) -> None:
    """That of a block that is known, and that which is being written."""
    disk = tier(tmp_path)
    fill(disk, range(6))
    segments(tmp_path)[which].unlink()
    gone = [0, 1, 2, 3] if which == 0 else [4, 5]
    assert append(disk, gone[0]) == Appended(tuple(key_of(n) for n in gone))
    disk.close()
    assert len(recovered(tmp_path)) == 6 - len(gone) + 1


def test_what_is_no_segment_is_left_alone(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "f", b"not a record" * 1000, record_of(0))
    (folder / "notes.txt").write_text("mine")
    (folder / "000000000009.kv").mkdir()
    (folder / "000000000008.kv").symlink_to(folder / "notes.txt")
    assert recovered(folder) == [0]
    assert (folder / "000000000001.kv").read_bytes() == b"not a record" * 1000
    assert (folder / "notes.txt").read_text() == "mine"


def test_records_of_a_later_version_are_left_for_it(tmp_path: Path) -> None:
    later = bytearray(record_of(1))
    later[8:10] = (VERSION + 1).to_bytes(2, "little")
    data = record_of(0) + bytes(later) + record_of(2) + bytes(later)
    folder = folder_with(tmp_path, "f", data)
    assert recovered(folder) == [0, 2]
    disk = tier(folder)
    disk.recover()
    assert drop_count(disk, "recover_version") == 2
    disk.clear()
    assert size_of(folder) == len(data)


def test_what_looks_like_records_all_over_is_searched_in_bounded_time(tmp_path: Path) -> None:
    magics = (b"antiphRC" + bytes(56)) * 300
    folder = folder_with(tmp_path, "f", magics + record_of(0) + magics + record_of(1))
    assert recovered(folder) == [0, 1]


def test_a_header_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    origin = replace(ORIGIN, page_tokens=1, block_tokens=2000, page_bytes=256)
    disk = tier(tmp_path, origin, limit_bytes=64 << 20)
    assert isinstance(append(disk, 0, origin), Appended)
    assert read(disk, 0, origin) is None
    disk.close()
    again = tier(tmp_path, origin, limit_bytes=64 << 20)
    assert again.recover() == (block_of(0),)
    assert MOST_HEADER_BYTES > 64_000
    assert read(again, 0, origin) is None
