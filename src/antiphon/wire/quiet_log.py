"""A log that a misbehaving peer can't flood."""

import logging
from collections.abc import Callable

from antiphon.types import Seconds

MOST_A_WINDOW = 20
WINDOW_S = 60.0
REPEAT_S = 600.0


class QuietLog:
    """Writes at most `MOST_A_WINDOW` lines in `WINDOW_S`, and later how many it left out."""

    def __init__(self, log: logging.Logger, clock: Callable[[], Seconds]) -> None:
        self._log = log
        self._clock = clock
        self._since = clock()
        self._lines = 0
        self._said: dict[str, Seconds] = {}

    def trouble(self, message: str, *values: object) -> None:
        """`warning` about a state that lasts, and is met over and over: the same line is written
        again only after `REPEAT_S`."""
        line, now = message % values, self._clock()
        if line in self._said and now - self._said[line] < REPEAT_S:
            return
        self._said.pop(line, None)
        if len(self._said) >= MOST_A_WINDOW:
            del self._said[next(iter(self._said))]
        self._said[line] = now
        self.warning("%s", line)

    def recovered(self) -> None:
        """It is well again: the same trouble is news when it comes back."""
        self._said.clear()

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
