"""One file descriptor over a Unix socket (SCM_RIGHTS, unix(7)).

The descriptor travels with one byte of the stream, and whoever reads that byte otherwise loses it.
asyncio's streams read ahead, so the receiver takes the descriptor from the bare socket first:

    sock = socket.socket(AF_UNIX); sock.setblocking(False); await loop.sock_connect(sock, path)
    fd = await receive_fd_on_loop(sock, timeout_s)
    reader, writer = await asyncio.open_unix_connection(sock=sock)

The sender may have a stream already, as long as nothing waits in its buffer:

    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as sock:
        send_fd(sock, fd, timeout_s)
"""

import array
import asyncio
import os
import select
import socket
import time

from antiphon.errors import PeerError

_MARK = b"F"
_ONE = array.array("i").itemsize


def send_fd(sock: socket.socket, fd: int, timeout_s: float) -> None:
    """Send a duplicate of `fd`; ours stays ours. The socket may be blocking or not.

    Raises `PeerError` if the peer is gone or does not read.
    """
    rights = array.array("i", [fd])
    try:
        _wait(sock, select.POLLOUT, timeout_s)
        sock.sendmsg([_MARK], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_DONTWAIT)
    except OSError as error:
        raise PeerError(f"a peer did not take our descriptor: {error}") from error


def receive_fd(sock: socket.socket, timeout_s: float) -> int:
    """The descriptor that the peer sends next; the caller closes it. Nothing after it is read.

    Raises `PeerError`: silence, an end, or anything else than one descriptor. None is leaked.
    """
    try:
        _wait(sock, select.POLLIN, timeout_s)
        flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        data, items, told, _ = sock.recvmsg(1, socket.CMSG_LEN(_ONE), flags)
    except OSError as error:
        raise PeerError(f"no descriptor came from a peer: {error}") from error
    received = array.array("i")
    for level, kind, content in items:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(content[: len(content) - len(content) % _ONE])
    if data == _MARK and len(received) == 1 and not told & socket.MSG_CTRUNC:
        return received[0]
    for fd in received:
        os.close(fd)
    if not data:
        raise PeerError("a peer closed the connection instead of sending a descriptor")
    raise PeerError(f"a peer sent {data!r} with {len(received)} descriptors, not {_MARK!r} with 1")


async def receive_fd_on_loop(sock: socket.socket, timeout_s: float) -> int:
    """`receive_fd` of a non-blocking socket while the event loop goes on."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        async with asyncio.timeout(timeout_s):
            await readable.wait()
    except TimeoutError as error:
        raise PeerError(f"no descriptor came from a peer within {timeout_s} s") from error
    finally:
        loop.remove_reader(sock)
    return receive_fd(sock, 0)


def _wait(sock: socket.socket, event: int, timeout_s: float) -> None:
    """Raises `TimeoutError` unless the socket is ready, or broken, in time."""
    poll = select.poll()
    poll.register(sock, event)
    ends = time.monotonic() + timeout_s
    while not poll.poll(max(0, 1000 * (ends - time.monotonic()))):
        if time.monotonic() >= ends:
            raise TimeoutError(f"silent for {timeout_s} s")
