"""The decision log of a process: it may end early, the service may not.

The gateway's is the file that was named; a worker's lies beside it, with the worker's id in its
name. A life that is not the process's first has its number there too: what the one before wrote is
what one wants to read.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from antiphon.core.recorder import Entry
from antiphon.wire import DecisionLogWriter

from .private_file import private_file

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


def log_path(named: str, worker: str | None, life: int) -> Path:
    """Where a process's log is: `run.jsonl`, `run.mixed-0.jsonl`, `run.mixed-0.2.jsonl`."""
    path = Path(named)
    marks = [worker] if worker is not None else []
    marks += [str(life)] if life > 1 else []
    return path.with_name(".".join([path.stem, *marks]) + path.suffix)


@contextlib.contextmanager
def opened_log(
    named: str | None, worker: str | None = None, life: int = 1
) -> Iterator[DecisionLogWriter | None]:
    """The writer of a process's log, or None if there is to be none.

    Raises `ConfigError` if the file can't be written.
    """
    if named is None:
        yield None
        return
    path = log_path(named, worker, life)
    with private_file(path, key="log.decisions") as file:
        yield DecisionLogWriter(file)
