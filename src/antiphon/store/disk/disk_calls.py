"""The calls that a disk can fail: in one place, so that a test can put a disk there that does."""

import os
from collections.abc import Sequence
from typing import TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview

_MOST_BUFFERS = 1024
"""IOV_MAX on Linux."""
_FILE_MODE = 0o600


class DiskCalls:
    """The system's calls on files of one folder, by its descriptor. All raise `OSError`."""

    def create(self, folder: int, name: str) -> int:
        """A new file, to be written and read; its name must be free."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(name, flags, _FILE_MODE, dir_fd=folder)

    def open(self, folder: int, name: str, *, to_write: bool = False) -> int:
        """A file that is there."""
        flags = (os.O_RDWR if to_write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(name, flags, dir_fd=folder)

    def remove(self, folder: int, name: str) -> None:
        """Unlink it; descriptors of it stay good."""
        os.unlink(name, dir_fd=folder)

    def write_at(self, fd: int, buffers: Sequence[Bytes], at: int) -> int:
        """Write the beginning of `buffers`; how many bytes."""
        return os.pwritev(fd, buffers, at)

    def read_at(self, fd: int, buffers: Sequence[bytearray | memoryview], at: int) -> int:
        """Fill the beginning of `buffers`; how many bytes, 0 at the end of the file."""
        return os.preadv(fd, buffers, at)

    def sync(self, fd: int) -> None:
        """Force what was written to the disk."""
        os.fdatasync(fd)

    def cut(self, fd: int, size: int) -> None:
        """Make the file so short."""
        os.ftruncate(fd, size)

    def size(self, fd: int) -> int:
        """Bytes of the file."""
        return os.fstat(fd).st_size


def write_whole(calls: DiskCalls, fd: int, buffers: Sequence[Bytes], at: int) -> None:
    """Write all of `buffers`, however often the system stops short. Raises `OSError`."""
    for group in _groups(buffers):
        while group:
            done = calls.write_at(fd, group, at)
            if done <= 0:
                raise OSError(f"the system wrote {done} bytes")
            at += done
            group = _after(group, done)


def read_whole(
    calls: DiskCalls, fd: int, buffers: Sequence[bytearray | memoryview], at: int
) -> bool:
    """Fill all of `buffers`; False: the file ends before. Raises `OSError`."""
    for group in _groups(buffers):
        while group:
            done = calls.read_at(fd, group, at)
            if done <= 0:
                return False
            at += done
            group = _after(group, done)
    return True


def _groups(buffers: Sequence[Bytes]) -> list[list[memoryview]]:
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    views = [view for view in views if len(view)]
    return [views[at : at + _MOST_BUFFERS] for at in range(0, len(views), _MOST_BUFFERS)]


def _after(views: list[memoryview], done: int) -> list[memoryview]:
    """What is left of `views` behind their first `done` bytes."""
    for number, view in enumerate(views):
        if done < len(view):
            return [view[done:], *views[number + 1 :]]
        done -= len(view)
    return []
