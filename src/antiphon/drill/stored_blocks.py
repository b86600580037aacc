"""The blocks that a store keeps on disk, as files of this user: found, and damaged.

A store holds its folder open; segments in it are of whole records, each with a header.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from antiphon.core.draws import Draws
from antiphon.store.disk.disk_calls import DiskCalls
from antiphon.store.disk.segment_scan import FoundRecord, scan

from .process_fault import Process, is_dead

_SEGMENT = re.compile(r"\d{12}\.kv")


@dataclass(frozen=True, slots=True)
class ChangedByte:
    """A byte that was changed: what it was, and what it is."""

    file: Path
    at: int
    was: int
    now: int

    @property
    def is_there(self) -> bool:
        """The file still has it so. False also if the file is gone."""
        with suppress(OSError):
            return _byte(self.file, self.at) == self.now
        return False


def segments_of(store: Process) -> list[Path]:
    """The segment files in the folders that the process holds open, oldest first."""
    folders: set[Path] = set()
    with suppress(OSError):
        for link in Path(f"/proc/{store.pid}/fd").iterdir():
            with suppress(OSError):
                folders |= {path for path in (link.readlink(),) if path.is_dir()}
    if is_dead(store):
        return []
    found = [file for folder in folders for file in folder.iterdir() if _is_segment(file)]
    return sorted(found)


def change_byte(store: Process, draws: Draws, number: int) -> ChangedByte | None:
    """Flip a bit in the pages of some record. None: there is no record."""
    records = [(file, record) for file in segments_of(store) for record in _records(file)]
    if not records:
        return None
    file, record = draws.choice(records, "block", number)
    header = record.header
    at = draws.below(header.record_bytes - header.header_bytes, "byte", number)
    at += record.at + header.header_bytes
    try:
        was = _byte(file, at)
        now = was ^ (1 << draws.below(8, "bit", number))
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(descriptor, bytes([now]), at)
        finally:
            os.close(descriptor)
    except (OSError, IndexError):
        return None  # it was evicted meanwhile
    return ChangedByte(file, at, was, now)


def _is_segment(file: Path) -> bool:
    return bool(_SEGMENT.fullmatch(file.name))


def _records(file: Path) -> list[FoundRecord]:
    with suppress(OSError), file.open("rb") as opened:
        return scan(DiskCalls(), opened.fileno(), file.stat().st_size).records
    return []


def _byte(file: Path, at: int) -> int:
    with file.open("rb") as opened:
        opened.seek(at)
        return opened.read(1)[0]
