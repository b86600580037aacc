"""Calls from many threads, and one end after which nothing runs any more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CallGate:
    """Open until `close`, which waits for the calls that are inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._open = True

    @contextmanager
    def call(self) -> Iterator[bool]:
        """A call is inside for as long; False: the gate is closed, so it must do nothing."""
        with self._changed:
            is_open = self._open
            self._inside += is_open
        try:
            yield is_open
        finally:
            with self._changed:
                self._inside -= is_open
                self._changed.notify_all()

    @property
    def is_open(self) -> bool:
        """Whether a call that takes long should go on."""
        return self._open

    def close(self) -> bool:
        """Let nobody in any more, then wait until nobody is inside. False: it was closed before."""
        with self._changed:
            was_open, self._open = self._open, False
            self._changed.wait_for(lambda: not self._inside)
        return was_open
