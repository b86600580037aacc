"""A connected socket that an event loop takes over."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def owned_by_loop(connection: socket.socket) -> Iterator[socket.socket]:
    """Around the call that hands `connection` to the running loop: who closes its descriptor.

    asyncio's transports close the object itself. uvloop's close the descriptor, and tell the object
    only if they live on after the call: if the call is cancelled, or the connection ends during it,
    the object would later close a number that is another's by then (uvloop issue 738). So there
    the object lets go of it: afterwards the descriptor is the loop's alone, and closing the object
    has no effect.
    """
    try:
        yield connection
    finally:
        if not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
            connection.detach()
