"""SIGTERM and Ctrl-C, as a parent of processes hears them."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def handled_signals(signalled: Callable[[int], None]) -> Iterator[None]:
    """While it lasts, `signalled` is called with the number of each, on the running loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled, number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
