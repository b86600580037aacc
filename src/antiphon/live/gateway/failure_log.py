"""Unexpected failures in the log: each with its traceback, but never a flood of them."""

import logging
from collections.abc import Callable

from antiphon.types import Seconds

_log = logging.getLogger(__name__)

MOST_A_WINDOW = 10
WINDOW_S = 60.0


class FailureLog:
    """Writes at most `MOST_A_WINDOW` failures in `WINDOW_S`, and later how many it left out.

    A request that fails can be sent again as fast as the network allows: its log must not fill
    the disk.
    """

    def __init__(self, clock: Callable[[], Seconds]) -> None:
        self._clock = clock
        self._since = clock()
        self._count = 0

    def write(self, request_id: str, error: Exception) -> None:
        """Log this failure, with its traceback, unless there were too many just before."""
        now = self._clock()
        if now - self._since >= WINDOW_S:
            if self._count > MOST_A_WINDOW:
                _log.error("%d more requests failed", self._count - MOST_A_WINDOW)
            self._since, self._count = now, 0
        self._count += 1
        if self._count <= MOST_A_WINDOW:
            _log.error("request %s failed", request_id, exc_info=error)
