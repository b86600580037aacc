"""A folder that one store has for itself: nobody else can enter it, no second store gets it."""

import fcntl
import os
import re
import stat
from contextlib import suppress
from copy import copy
from pathlib import Path

from antiphon.errors import UsageError
from antiphon.host import open_folder_remedy

_MODE = 0o700
_SEGMENT = re.compile(r"(\d{12})\.kv")
_LOCKS = Path("/proc/locks")
_LOCK = re.compile(r"FLOCK +ADVISORY +WRITE +(-?\d+) +([0-9a-f]+:[0-9a-f]+:\d+) ")
_PROBE = "writable.tmp"


def segment_name(number: int) -> str:
    """The file of a segment. Numbers grow and are not used again."""
    return f"{number:012}.kv"


class PrivateFolder:
    """The folder, locked until `close` (and that of each that was `shared`) or this process's end.
    `fd` is its descriptor.

    `segments`: number and size in bytes of each segment that was there then, by number.
    """

    def __init__(self, path: Path) -> None:
        """Raises `UsageError`: it can't be made, others can enter it, another store has it."""
        self.path = path
        try:
            path.mkdir(mode=_MODE, parents=True, exist_ok=True)
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _refused(path, f"{error.strerror}") from error
        try:
            self._check_owner()
            self._lock()
            self._check_writable()
            self.segments = self._list()
        except UsageError:
            self.close()
            raise

    def shared(self) -> "PrivateFolder":
        """The same folder under the same lock, with what is there now.

        Raises `UsageError`: it can't be read.
        """
        other = copy(self)
        other.fd = os.dup(self.fd)
        try:
            other.segments = other._list()
        except UsageError:
            other.close()
            raise
        return other

    @property
    def is_gone(self) -> bool:
        """Whether it was deleted: what is open stays open, but has no name any more."""
        return os.fstat(self.fd).st_nlink == 0

    def has(self, number: int) -> bool:
        """Whether the segment still has its name. What can't be said counts as yes."""
        try:
            os.stat(segment_name(number), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Unlock it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _list(self) -> dict[int, int]:
        found = {}
        try:
            with os.scandir(self.fd) as files:
                for file in files:
                    match = _SEGMENT.fullmatch(file.name)
                    if match and file.is_file(follow_symlinks=False):
                        found[int(match[1])] = file.stat(follow_symlinks=False).st_size
        except OSError as error:
            raise _refused(self.path, f"it can't be read: {error.strerror}") from error
        return dict(sorted(found.items()))

    def _check_owner(self) -> None:
        facts = os.fstat(self.fd)
        if facts.st_uid != os.geteuid():
            raise _refused(self.path, "it belongs to another user")
        if stat.S_IMODE(facts.st_mode) & 0o077:
            raise _refused(self.path, f"others can enter it; {open_folder_remedy(self.path)}")

    def _lock(self) -> None:
        """The lock is on the folder itself: there is no lock file that could be deleted."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refused(
                self.path,
                f"another store ({_holder(os.fstat(self.fd))}) uses it; give each a folder of its "
                f"own (--store-dir)",
            ) from None
        except OSError as error:
            raise _refused(
                self.path, f"it can't be locked ({error.strerror}): use a local disk"
            ) from error

    def _check_writable(self) -> None:
        try:
            with suppress(FileNotFoundError):
                os.unlink(_PROBE, dir_fd=self.fd)
            os.close(os.open(_PROBE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.fd))
            os.unlink(_PROBE, dir_fd=self.fd)
        except OSError as error:
            raise _refused(self.path, f"it can't be written: {error.strerror}") from error


def _holder(facts: os.stat_result) -> str:
    """Which process has the lock, as far as this one may know."""
    file = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    with suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            match = _LOCK.search(line)
            if match and match[2] == file and int(match[1]) > 0:
                return f"process {match[1]}"
    return "of a process that can't be seen from here"


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"folder of the disk tier (store.dir, --store-dir) {path}: {why}")
