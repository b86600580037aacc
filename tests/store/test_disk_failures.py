"""What happens to a disk: cut, damaged, swapped, full, slow to fail, shared. Never wrong KV."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from disk_kit import (
    LARGE,
    LIMIT_BYTES,
    RECORD_BYTES,
    FaultyDisk,
    HandClock,
    append,
    drop_count,
    fill,
    read,
    readable,
    segments,
    size_of,
    tier,
)
from record_kit import ORIGIN, block_of, header_of, key_of, pages_of, record_of, same

from antiphon.errors import UsageError
from antiphon.store.disk import (
    Appended,
    DiskMiss,
    DiskRefusal,
    Fsync,
    NotAppended,
    PrivateFolder,
    private_folder,
)
from antiphon.store.record import MOST_HEADER_BYTES, VERSION, new_pages

HERE = Path(__file__).parent
HEADER_BYTES = header_of(1).header_bytes


def folder_with(tmp_path: Path, name: str, *files: bytes) -> Path:
    """A folder of a tier with these segments."""
    folder = tmp_path / name
    folder.mkdir(mode=0o700)
    for number, data in enumerate(files, 1):
        (folder / f"{number:012}.kv").write_bytes(data)
    return folder


def recovered(folder: Path, numbers: range = range(8)) -> list[int]:
    """Which blocks a new tier finds there; each that it gives has the right bytes."""
    disk = tier(folder)
    found = {block.key for block in disk.recover()}
    good = readable(disk, numbers)
    assert {key_of(number) for number in good} <= found
    disk.close()
    return good


# ── damage at rest ───────────────────────────────────────────────────────────────────────────────


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


# ── disks that fail ──────────────────────────────────────────────────────────────────────────────


def test_the_system_may_write_and_read_less_than_it_is_asked_to(tmp_path: Path) -> None:
    calls = FaultyDisk()
    calls.most_bytes = 100
    disk = tier(tmp_path, calls=calls)
    fill(disk, range(6))
    assert readable(disk, range(6)) == list(range(6))
    disk.close()
    again = tier(tmp_path, calls=calls)
    assert len(again.recover()) == 6


def test_a_full_disk_takes_the_room_from_the_oldest(tmp_path: Path) -> None:
    """Mooncake 3139: puts failed while it was full, for ever."""
    calls = FaultyDisk()
    calls.room_bytes = 10 * RECORD_BYTES + 100
    disk = tier(tmp_path, calls=calls)
    fill(disk, range(10))
    outcome = append(disk, 10)
    assert outcome == Appended(tuple(key_of(n) for n in range(4)))
    fill(disk, range(11, 60))
    assert readable(disk, range(60))[-6:] == list(range(54, 60))
    assert all(number >= 50 for number in readable(disk, range(60)))


def test_a_disk_that_others_filled_is_left_alone_and_asked_again(tmp_path: Path) -> None:
    calls, clock = FaultyDisk(), HandClock()
    calls.room_bytes = 2 * RECORD_BYTES + 700
    disk = tier(tmp_path, calls=calls, clock=clock)
    fill(disk, [0, 1])
    assert append(disk, 2) == NotAppended(DiskRefusal.FULL)
    assert size_of(tmp_path) == 2 * RECORD_BYTES, "the half record was cut off"
    calls.calls.clear()
    assert append(disk, 2) == NotAppended(DiskRefusal.PAUSED)
    assert calls.calls == []
    assert readable(disk, range(3)) == [0, 1], "what is there can be read meanwhile"
    clock.now = 1.0
    assert append(disk, 2) == NotAppended(DiskRefusal.FULL)
    clock.now = 2.5
    assert append(disk, 2) == NotAppended(DiskRefusal.PAUSED)
    calls.room_bytes = None
    clock.now = 3.0
    assert append(disk, 2) == Appended()
    assert readable(disk, range(3)) == [0, 1, 2]
    assert drop_count(disk, "put_full") == 2


@pytest.mark.parametrize("call", ["write_at", "create", "sync", "cut"])
@pytest.mark.parametrize("failing_first", [True, False])
def test_a_write_that_fails_is_not_visible_and_writing_goes_on_later(
    tmp_path: Path, call: str, failing_first: bool
) -> None:
    """LMCache 4991: a failed write stayed visible to look-ups."""
    calls, clock = FaultyDisk(), HandClock()
    disk = tier(tmp_path, calls=calls, clock=clock, fsync=Fsync.WRITE)
    fill(disk, [] if failing_first else range(4))
    calls.fails = {call: errno.EIO} | ({"write_at": errno.EIO} if call == "cut" else {})
    assert append(disk, 4) == NotAppended(DiskRefusal.FAILED)
    assert key_of(4) not in disk
    assert read(disk, 4) is DiskMiss.ABSENT
    calls.fails = {}
    clock.now = 60.0
    fill(disk, range(4, 12))
    expected = list(range(4 if failing_first else 0, 12))
    assert readable(disk, range(12)) == expected
    disk.close()
    assert recovered(tmp_path, range(12)) == expected


def test_bytes_that_can_be_neither_finished_nor_cut_off_are_accounted_for(tmp_path: Path) -> None:
    class FailsHalfWay(FaultyDisk):
        def write_at(self, fd, buffers, at):
            if "cut" in self.fails:
                super().write_at(fd, [b"half" * 150], at)
                raise OSError(errno.EIO, "half way")
            return super().write_at(fd, buffers, at)

    calls, clock = FailsHalfWay(), HandClock()
    disk = tier(tmp_path, calls=calls, clock=clock)
    fill(disk, range(2))
    calls.fails = {"cut": errno.EIO}
    for number in range(2, 40):
        clock.now += 100
        assert append(disk, number) == NotAppended(DiskRefusal.FAILED)
        assert disk.stats().used_bytes == size_of(tmp_path)
    assert size_of(tmp_path) > 2 * RECORD_BYTES + 30 * 600
    calls.fails = {}
    clock.now += 100
    fill(disk, range(40, 150))
    assert size_of(tmp_path) == disk.stats().used_bytes <= LIMIT_BYTES
    disk.close()
    assert len(recovered(tmp_path, range(150))) > 50


def test_a_block_that_can_not_be_read_is_forgotten(tmp_path: Path) -> None:
    calls = FaultyDisk()
    disk = tier(tmp_path, calls=calls)
    fill(disk, range(3))
    for failing in ("open", "read_at"):
        calls.fails = {failing: errno.EIO}
        number = ("open", "read_at").index(failing)
        assert read(disk, number) is DiskMiss.FAILED
        calls.fails = {}
        assert read(disk, number) is DiskMiss.ABSENT
    assert read(disk, 2) is None


def test_a_segment_that_can_not_be_deleted_stops_writing_and_not_the_store(tmp_path: Path) -> None:
    calls, clock = FaultyDisk(), HandClock()
    disk = tier(tmp_path, calls=calls, clock=clock)
    fill(disk, range(55))
    calls.fails = {"remove": errno.EROFS}
    outcomes = [append(disk, number) for number in range(55, 70)]
    assert NotAppended(DiskRefusal.FAILED) in outcomes
    assert size_of(tmp_path) <= LIMIT_BYTES
    assert len(disk.clear()) == len([o for o in outcomes if isinstance(o, Appended)]) + 55
    assert readable(disk, range(70)) == []
    calls.fails = {}
    clock.now = 100.0
    fill(disk, range(100, 170))
    disk.close()


def test_a_disk_that_can_not_be_scanned_has_nothing(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(3))
    disk.close()
    calls = FaultyDisk()
    calls.fails = {"read_at": errno.EIO}
    again = tier(tmp_path, calls=calls)
    assert again.recover() == ()
    assert drop_count(again, "recover_unreadable") == 1
    assert size_of(tmp_path) == 3 * RECORD_BYTES


# ── real limits of the system ────────────────────────────────────────────────────────────────────

CHILD = """
import sys
sys.path[:0] = [{here!r}]
from pathlib import Path
from disk_kit import LARGE, append, fill, read, readable, tier
from record_kit import block_of, checksums, pages_of
from antiphon.store.disk import Appended
folder = Path(sys.argv[1])
"""


def child(code: str, folder: Path, **options: object) -> subprocess.Popen:
    text = CHILD.format(here=str(HERE)) + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], stdout=subprocess.PIPE, text=True, **options
    )


def test_killed_in_the_middle_of_writing_it_comes_back_with_what_it_had(tmp_path: Path) -> None:
    """LMCache 2143: a restart left stale metadata behind. Here kill -9, just when a write began."""
    writing = """
        disk = tier(folder, LARGE, limit_bytes=1 << 30)
        for number in range(10**6):
            block = block_of(number), *(lambda pages: (pages, checksums(pages)))(pages_of(0, LARGE))
            print("begins", number, flush=True)
            assert isinstance(disk.append(*block), Appended)
            print("ended", number, flush=True)
    """
    pages = pages_of(0, LARGE)
    for after in (0, 1, 5):
        folder = tmp_path / f"after-{after}"
        with child(writing, folder) as process:
            assert process.stdout is not None
            while process.stdout.readline() != f"begins {after}\n":
                pass
            process.send_signal(signal.SIGKILL)
            later = process.stdout.read().count("ended")
        disk = tier(folder, LARGE, limit_bytes=1 << 30)
        found = disk.recover()
        assert after + later <= len(found) <= after + later + 1
        into = new_pages(LARGE)
        for number, block in enumerate(found):
            assert block == block_of(number)
            assert disk.read(block.key, into) is None
            assert same(into, pages)
        disk.close()


def test_a_file_size_limit_is_a_refusal(tmp_path: Path) -> None:
    code = """
        import resource
        disk = tier(folder, limit_bytes=1 << 20)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        for number in range(5):
            outcome = append(disk, number)
            print(number if isinstance(outcome, Appended) else outcome.reason)
        print(*readable(disk, range(5)))
    """
    with child(code, tmp_path / "f") as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.split() == ["0", "1", "full", "paused", "paused", "0", "1"]


def test_a_file_system_that_is_really_full(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir(mode=0o700)
    options = ["-o", "size=64k,mode=700", "tmpfs", str(mount)]
    try:
        subprocess.run(["mount", "-t", "tmpfs", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        disk = tier(mount, limit_bytes=1 << 20)
        fill(disk, range(200))
        good = readable(disk, range(200))
        assert good == list(range(good[0], 200))
        assert len(good) > 20
        disk.close()
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        with pytest.raises(UsageError, match="can't be written: Read-only"):
            tier(mount)
    finally:
        subprocess.run(["umount", str(mount)], check=True)


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_has_one_store(tmp_path: Path) -> None:
    """LMCache 1165: two instances on one host talked to each other through one path."""
    folder = tmp_path / "f"
    holding = """
        disk = tier(folder)
        print("locked", flush=True)
        sys.stdin.read()
    """
    with child(holding, folder, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(UsageError, match=rf"another store \(process {process.pid}\) uses it"):
            tier(folder)
        process.kill()
    disk = tier(folder)
    with pytest.raises(UsageError, match="--store-dir"):
        tier(folder)
    disk.close()
    tier(folder).close()


def test_a_locked_folder_is_shared_with_one_tier_after_the_other(tmp_path: Path) -> None:
    locked = PrivateFolder(tmp_path / "f")
    first = tier(locked)
    fill(first, range(3))
    first.close()
    with pytest.raises(UsageError, match="another store"):
        PrivateFolder(tmp_path / "f")
    second = tier(locked)
    second.recover()
    assert readable(second, range(4)) == [0, 1, 2]
    second.close()
    locked.close()
    PrivateFolder(tmp_path / "f").close()


def test_who_holds_a_lock_need_not_be_known(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(private_folder, "_LOCKS", tmp_path / "nowhere")
    held = PrivateFolder(tmp_path / "f")
    with pytest.raises(UsageError, match=r"another store \(of a process that can't be seen"):
        PrivateFolder(tmp_path / "f")
    held.close()


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir(mode=0o755)
    with pytest.raises(UsageError, match="chmod 700"):
        tier(folder)
    folder.chmod(0o700)
    tier(folder)


def test_a_file_and_an_impossible_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(UsageError, match="--store-dir"):
            tier(tmp_path / name)
    with pytest.raises(UsageError, match="--store-dir"):
        tier(Path("/proc/antiphon"))


def test_a_link_leads_to_the_one_folder_that_is_locked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    disk = tier(tmp_path / "real")
    with pytest.raises(UsageError, match=rf"another store \(process {os.getpid()}\) uses it"):
        tier(tmp_path / "link")
    disk.close()
    fill(tier(tmp_path / "link"), [0])
    assert segments(tmp_path / "real")


def test_a_folder_that_is_deleted_takes_nothing_more_and_has_nothing(tmp_path: Path) -> None:
    """Blocks went on into files that had no name any more."""
    folder = tmp_path / "f"
    disk = tier(folder)
    fill(disk, range(6))
    shutil.rmtree(folder)
    gone = append(disk, 6)
    assert gone == NotAppended(DiskRefusal.FOLDER_GONE, tuple(key_of(n) for n in range(6)))
    assert append(disk, 7) == NotAppended(DiskRefusal.FOLDER_GONE)
    assert (disk.present([key_of(0)]), disk.stats().blocks, disk.stats().used_bytes) == (0, 0, 0)
    assert dict(disk.stats().dropped) == {"lost": 6, "put_folder_gone": 2}
    disk.close()
    assert recovered(folder) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir(mode=0o500)
    with pytest.raises(UsageError, match="can't be written"):
        tier(folder)


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    disk = tier(tmp_path)
    fill(disk, range(100))
    readable(disk, range(100))
    with pytest.raises(UsageError):
        tier(tmp_path)
    disk.close()
    assert descriptors() == before


# ── many threads ─────────────────────────────────────────────────────────────────────────────────


def test_readers_beside_a_writer_that_evicts_never_see_wrong_bytes(tmp_path: Path) -> None:
    """Mooncake 850: a read outlived the eviction of what it read. LMCache 2299: wrong text under
    concurrency."""
    disk = tier(tmp_path, limit_bytes=24 * RECORD_BYTES)
    done = threading.Event()
    found: list[int] = []
    problems: list[BaseException] = []

    def reading(seed: int) -> None:
        number = seed
        try:
            while not done.is_set():
                number = (number * 31 + 7) % 300
                found.extend([number] if read(disk, number) is None else [])
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=reading, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(300):
            assert isinstance(append(disk, number), Appended)
            if number % 50 == 49:
                disk.clear()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not problems
    assert found
    assert set(dict(disk.stats().dropped)) <= {"rewritten", "removed", "remove_unmarked"}


def test_close_ends_a_recovery(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(40))
    disk.close()
    again = tier(tmp_path)
    first, closing = threading.Event(), threading.Thread(target=again.close)
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if not first.is_set():
            first.set()
            closing.start()
            while again.append(block_of(99), pages_of(99), [0, 0]) != CLOSED:
                pass

    again.recover(progress)
    closing.join()
    assert seen == [4 * RECORD_BYTES]


CLOSED = NotAppended(DiskRefusal.CLOSED)


def test_close_waits_for_a_read(tmp_path: Path) -> None:
    class Slow(FaultyDisk):
        def read_at(self, fd, buffers, at):
            reading.set()
            assert go_on.wait(30)
            return super().read_at(fd, buffers, at)

    reading, go_on = threading.Event(), threading.Event()
    disk = tier(tmp_path, calls=Slow())
    fill(disk, [0])
    seen: list[DiskMiss | None] = []
    reader = threading.Thread(target=lambda: seen.append(read(disk, 0)))
    closer = threading.Thread(target=disk.close)
    reader.start()
    assert reading.wait(30)
    closer.start()
    while read(disk, 1) is not DiskMiss.CLOSED:
        pass
    assert closer.is_alive()
    go_on.set()
    reader.join()
    closer.join()
    assert seen == [None]
