"""A drill's own folder in the temporary one. It is locked: what a killed drill left behind is not,
and the next drill of the same user removes it."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "antiphon-drill-"


@contextlib.contextmanager
def own_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent` (the system's temporary one), gone afterwards. Before it, those of
    this user's drills that are no more are removed."""
    parent = parent or Path(tempfile.gettempdir())
    for left in sorted(parent.glob(f"{_PREFIX}*")):
        _remove_if_left(left)
    with contextlib.ExitStack() as held:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            descriptor = _locked(folder)
            if descriptor is not None:
                held.callback(os.close, descriptor)
                break
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _remove_if_left(folder: Path) -> None:
    descriptor = _locked(folder)
    if descriptor is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the folder; None: it is somebody's, or there no more."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts = os.fstat(descriptor)
        # Another drill may have removed it between its making and its lock.
        if facts.st_uid == os.geteuid() and facts.st_nlink and stat.S_ISDIR(facts.st_mode):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
