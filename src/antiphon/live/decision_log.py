"""The decision log of a server: it may end early, the service may not."""

import logging
from collections.abc import Callable

from antiphon.core.recorder import Entry

_log = logging.getLogger(__name__)


class DecisionLog:
    """Passes entries to `write` until that raises an `OSError`: then the log ends, and says so.

    All machines of a server share one, so that none of them goes on alone.
    """

    def __init__(self, write: Callable[[Entry], None]) -> None:
        self._write: Callable[[Entry], None] | None = write

    def __call__(self, entry: Entry) -> None:
        """Write the entry, unless the log has ended."""
        if self._write is None:
            return
        try:
            self._write(entry)
        except OSError as error:
            _log.error("the decision log ends: %s", error)
            self._write = None
