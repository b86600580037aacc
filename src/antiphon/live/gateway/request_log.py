"""One line of JSON a request: what became of it, all its stamps, its attempts and their routes.

The event loop hands lines over and never waits for the disk; a thread writes them. A disk that
falls behind costs lines, which are counted, not latency.
"""

import logging
import queue
import threading
from typing import BinaryIO

import msgspec

from antiphon.types import Rejected, RequestRecord

_log = logging.getLogger(__name__)

MAX_UNWRITTEN = 10_000
"""Lines that may wait for the disk."""


class RequestLog:
    """Appends to a binary file, which stays its owner's to close, from `start` to `close`."""

    def __init__(self, file: BinaryIO, *, max_unwritten: int = MAX_UNWRITTEN) -> None:
        self._file = file
        self._lines: queue.Queue[bytes | None] = queue.Queue(max_unwritten)
        self._thread = threading.Thread(target=self._write, name="request-log", daemon=True)
        self._broken = False
        self.lost = 0
        """Lines that were not written."""

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def __call__(self, record: RequestRecord, rejected: Rejected | None) -> None:
        """Write one line soon, if the disk keeps up."""
        tree = msgspec.to_builtins(record)
        if rejected is not None:
            tree["rejected"] = rejected.reason.value
        try:
            self._lines.put_nowait(msgspec.json.encode(tree) + b"\n")
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Write what is left. Waits for the disk."""
        self._lines.put(None)
        self._thread.join()
        if self.lost:
            _log.error("%d lines of the request log were lost", self.lost)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            if self._broken:
                self.lost += 1
                continue
            try:
                self._file.write(line)
                if self._lines.empty():
                    self._file.flush()
            except OSError as error:
                _log.error("the request log ends: %s", error)
                self._broken, self.lost = True, self.lost + 1
