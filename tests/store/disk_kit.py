"""Small disk tiers, disks that fail, and a clock that is turned by hand."""

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from record_kit import ORIGIN, block_of, checksums, key_of, pages_of, same

from antiphon.store.disk import Appended, DiskMiss, DiskTier, Fsync, NotAppended
from antiphon.store.disk.disk_calls import Bytes, DiskCalls
from antiphon.store.disk.record_files import RecordFiles
from antiphon.store.record import KvOrigin, new_pages
from antiphon.store.record.record_seal import RecordSeal

RECORD_BYTES = 320 + 2 * 512
SEGMENT_BYTES = 4 * RECORD_BYTES
LIMIT_BYTES = 64 * RECORD_BYTES
LARGE = replace(ORIGIN, page_bytes=2 << 20)
"""A write of it takes long enough to be interrupted."""


class HandClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FaultyDisk(DiskCalls):
    """A disk that is as good as its fields say.

    `fails`: errno of the calls with these names. `room_bytes`: of all files together, so that
    removing one makes room. `most_bytes`: of a call.
    """

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.room_bytes: int | None = None
        self.most_bytes: int | None = None
        self.calls: list[str] = []

    def create(self, folder: int, name: str) -> int:
        self._called("create")
        return super().create(folder, name)

    def open(self, folder: int, name: str, *, to_write: bool = False) -> int:
        self._called("open")
        return super().open(folder, name, to_write=to_write)

    def remove(self, folder: int, name: str) -> None:
        self._called("remove")
        if self.room_bytes is not None:
            self.room_bytes += os.stat(name, dir_fd=folder).st_size
        super().remove(folder, name)

    def write_at(self, fd: int, buffers: Sequence[Bytes], at: int) -> int:
        self._called("write_at")
        wanted = [bytes(part) for part in buffers]
        data = b"".join(wanted)[: self.most_bytes]
        if self.room_bytes is not None and at + len(data) > self.size(fd):
            data = data[: self.room_bytes]
            if not data:
                raise OSError(errno.ENOSPC, "no room")
            self.room_bytes -= len(data)
        return super().write_at(fd, [data], at)

    def read_at(self, fd: int, buffers: Sequence[bytearray | memoryview], at: int) -> int:
        self._called("read_at")
        first = memoryview(buffers[0])[: self.most_bytes]
        return super().read_at(fd, buffers if self.most_bytes is None else [first], at)

    def sync(self, fd: int) -> None:
        self._called("sync")
        super().sync(fd)

    def cut(self, fd: int, size: int) -> None:
        self._called("cut")
        if self.room_bytes is not None:
            self.room_bytes += self.size(fd) - size
        super().cut(fd, size)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise OSError(self.fails[name], os.strerror(self.fails[name]))


def tier(
    folder: Path,
    origin: KvOrigin = ORIGIN,
    *,
    limit_bytes: int = LIMIT_BYTES,
    fsync: Fsync = Fsync.NEVER,
    calls: DiskCalls | None = None,
    clock: HandClock | None = None,
    files: type[RecordFiles] = RecordFiles,
    seal: RecordSeal | None = None,
) -> DiskTier:
    return DiskTier(
        folder,
        origin,
        limit_bytes=limit_bytes,
        fsync=fsync,
        segment_bytes=SEGMENT_BYTES,
        clock=clock or HandClock(),
        calls=calls,
        files=files,
        seal=seal,
    )


def append(
    disk: DiskTier, number: int, origin: KvOrigin = ORIGIN, **changes: object
) -> Appended | NotAppended:
    pages = pages_of(number, origin)
    return disk.append(block_of(number, **changes), pages, checksums(pages))


def fill(disk: DiskTier, numbers: Sequence[int]) -> None:
    for number in numbers:
        assert isinstance(append(disk, number), Appended)


def read(disk: DiskTier, number: int, origin: KvOrigin = ORIGIN) -> DiskMiss | None:
    """Read a block; if it says that it is there it must be the right bytes."""
    into = new_pages(origin)
    missed = disk.read(key_of(number), into)
    if missed is None:
        assert same(into, pages_of(number, origin)), f"block {number} is wrong"
    return missed


def readable(disk: DiskTier, numbers: Sequence[int]) -> list[int]:
    return [number for number in numbers if read(disk, number) is None]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kv"))


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in segments(folder))


def drop_count(disk: DiskTier, what: str) -> int:
    return dict(disk.stats().dropped).get(what, 0)


def recovered(folder: Path, numbers: range = range(8)) -> list[int]:
    """Which blocks a new tier finds there; each that it gives has the right bytes."""
    disk = tier(folder)
    found = {block.key for block in disk.recover()}
    good = readable(disk, numbers)
    assert {key_of(number) for number in good} <= found
    disk.close()
    return good
