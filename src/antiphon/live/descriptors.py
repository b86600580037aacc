"""File descriptors that ride on a stream's first frame (SCM_RIGHTS), before a `FrameStream` begins.

Whoever is sent descriptors owns them, wanted or not: all that came is appended to the caller's
list, also when something is raised, and the caller closes what it does not keep.
"""

import array
import asyncio
import socket
from collections.abc import Mapping

from antiphon.errors import PeerError
from antiphon.wire import Frame, FrameError, FrameReader

_READ_BYTES = 64 * 2**10
_MOST_DESCRIPTORS = 4
"""One may come; so many are closed again if they do."""


async def first_frame(
    connection: socket.socket,
    receives: Mapping[int, int],
    descriptors: list[int],
    *,
    alone: bool = False,
) -> Frame | None:
    """The frame that comes before any other, of a kind in `receives`. None: there was none.

    What comes after it is left in the socket, or, with `alone`, may not come yet. `connection` is
    non-blocking. Raises `FrameError` for anything else, `OSError`.
    """
    reader = FrameReader(receives)
    while True:
        await _readable(connection)
        try:
            most = _READ_BYTES if alone else min(reader.missing, _READ_BYTES)
            data = _receive(connection, most, descriptors)
        except BlockingIOError:
            continue
        if not data:
            return None
        if frame := reader.feed_one(data):
            return frame


def send_all_at_once(connection: socket.socket, data: bytes, descriptors: list[int]) -> None:
    """A first frame and what rides on it: few bytes, which an empty socket always takes."""
    if socket.send_fds(connection, [data], descriptors) != len(data):
        raise PeerError("the socket did not take a first message")


def _receive(connection: socket.socket, most: int, descriptors: list[int]) -> bytes:
    """Like `recv`; appends what descriptors came along. Raises `FrameError` if there were more."""
    size = array.array("i").itemsize
    data, ancillary, flags, _ = connection.recvmsg(
        most, socket.CMSG_SPACE(_MOST_DESCRIPTORS * size), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = content[: len(content) - len(content) % size]
            descriptors += array.array("i", whole)
    if flags & socket.MSG_CTRUNC:
        raise FrameError("more descriptors came than may")
    if len(descriptors) > _MOST_DESCRIPTORS:
        raise FrameError("more descriptors came than may")
    return data


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection.fileno(), lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection.fileno())
