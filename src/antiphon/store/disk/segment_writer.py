"""Writing records one after another into segment files."""

import os
from collections.abc import Sequence

from .block_index import Place
from .disk_calls import Bytes, write_whole
from .disk_state import DiskState
from .outcomes import Fsync
from .private_folder import segment_name


class SegmentWriter:
    """The segment that is being written, if there is one. For one thread at a time.

    After an `OSError` the file ends where it ended before. If not even that can be had it is given
    up, and what lies behind its last whole record is dropped at the next start.
    """

    def __init__(self, state: DiskState, *, fsync: Fsync, segment_bytes: int) -> None:
        self._state = state
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._fd = -1
        self._next = max(state.folder.segments, default=0) + 1
        self.newest: int | None = None
        """The segment that was begun last; it may be finished."""
        self.number: int | None = None
        """Of the segment that is being written."""
        self.size_bytes = 0
        """Of that segment."""

    def write(self, parts: Sequence[Bytes], *, header_bytes: int, record_bytes: int) -> Place:
        """Write a record at the end; it lies at the place that is returned. Raises `OSError`."""
        if self.number is not None and self.size_bytes + record_bytes > self._segment_bytes:
            self.finish()
        number = self._begin() if self.number is None else self.number
        at = self.size_bytes
        try:
            write_whole(self._state.calls, self._fd, parts, at)
            if self._fsync is Fsync.WRITE:
                self._state.calls.sync(self._fd)
        except OSError:
            self._cut()
            raise
        self.size_bytes += record_bytes
        return Place(number, at, header_bytes, record_bytes)

    def finish(self) -> None:
        """Nothing more is written to this segment; flushed as said. Raises `OSError`."""
        if self.number is None:
            return
        try:
            if self._fsync is Fsync.SEGMENT:
                self._state.calls.sync(self._fd)
        finally:
            self._give_up()

    def _begin(self) -> int:
        number = self._next
        self._next += 1
        self._fd = self._state.calls.create(self._state.folder.fd, segment_name(number))
        self.newest = self.number = number
        self.size_bytes = 0
        if self._fsync is not Fsync.NEVER:
            os.fsync(self._state.folder.fd)
        return number

    def _cut(self) -> None:
        try:
            self._state.calls.cut(self._fd, self.size_bytes)
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        os.close(self._fd)
        self._fd, self.number = -1, None
