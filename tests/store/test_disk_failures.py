"""Disks that fail, fill up and are slow, and threads beside each other: never wrong KV."""

import errno
import threading
from pathlib import Path

import pytest
from disk_kit import (
    LIMIT_BYTES,
    RECORD_BYTES,
    FaultyDisk,
    HandClock,
    append,
    drop_count,
    fill,
    read,
    readable,
    recovered,
    size_of,
    tier,
)
from record_kit import block_of, key_of, pages_of

from antiphon.store.disk import Appended, DiskMiss, DiskRefusal, Fsync, NotAppended


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
