"""A lock on a folder, for one process or for several that only read; it ends with its holders."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(folder: Path, *, alone: bool = True) -> Iterator[None]:
    """Waits for the lock on an existing folder. Where there are no such locks: no lock.

    `alone`: nobody else has it meanwhile; else others may that don't want it alone either.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
