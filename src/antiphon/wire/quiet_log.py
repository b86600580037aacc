"""A log that a misbehaving peer can't flood."""

import logging
from collections.abc import Callable

from antiphon.types import Seconds

MOST_A_WINDOW = 20
WINDOW_S = 60.0


class QuietLog:
    """Writes at most `MOST_A_WINDOW` lines in `WINDOW_S`, and later how many it left out."""

    def __init__(self, log: logging.Logger, clock: Callable[[], Seconds]) -> None:
        self._log = log
        self._clock = clock
        self._since = clock()
        self._lines = 0

    def warning(self, message: str, *values: object) -> None:
        """Like `Logger.warning`, unless there were too many just before."""
        now = self._clock()
        if now - self._since >= WINDOW_S:
            if self._lines > MOST_A_WINDOW:
                self._log.warning("%d more lines left out", self._lines - MOST_A_WINDOW)
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= MOST_A_WINDOW:
            self._log.warning(message, *values)
