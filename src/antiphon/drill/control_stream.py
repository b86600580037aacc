"""Streams of a worker, taken hold of from outside: shut down, or written into.

No proxy stands between the two: Linux gives a process of the same user a duplicate of another's
socket (pidfd_getfd, as a debugger may have it), and shutting that down breaks the real stream for
both ends at once. It does so across network namespaces, too: a stream is known by both its ends.
"""

import ctypes
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from antiphon.errors import PeerError

from .process_fault import Process, is_dead

_SYS_PIDFD_GETFD = 438
"""The same number on all of Linux's architectures."""
_GARBAGE = bytes(range(192, 256))
_TCP_ESTABLISHED = 1

_Ends = tuple[tuple[str, int], tuple[str, int]]


def control_streams(process: Process, gateway: Path) -> list[socket.socket]:
    """Duplicates of the process's sockets that are connected to `gateway`. The caller closes them.

    Raises `PeerError` if the system does not give them.
    """
    found: list[socket.socket] = []
    with _sockets(process) as sockets:
        for one in sockets:
            with suppress(OSError):
                if one.family == socket.AF_UNIX and one.getpeername() == str(gateway):
                    found.append(one.dup())
    return found


def tcp_streams(process: Process, others: Sequence[Process]) -> list[socket.socket]:
    """Duplicates of the process's TCP sockets whose other end one of the `others` has, on this
    machine, whatever network each is in. The caller closes them. Raises `PeerError`, as above."""
    far: set[_Ends] = set()
    for other in others:
        with _sockets(other) as sockets:
            far.update(ends for one in sockets if (ends := _ends(one)) is not None)
    found: list[socket.socket] = []
    with _sockets(process) as sockets:
        for one in sockets:
            ends = _ends(one)
            if ends is not None and (ends[1], ends[0]) in far:
                found.append(one.dup())
    return found


def are_connected(process: Process, other: Process) -> bool:
    """Whether there is a TCP stream between them: then both are on this machine."""
    streams = tcp_streams(process, [other])
    for stream in streams:
        stream.close()
    return bool(streams)


def _ends(one: socket.socket) -> _Ends | None:
    """Both ends of a TCP connection; None: it is none."""
    if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
        return None
    try:
        return one.getsockname()[:2], one.getpeername()[:2]
    except OSError:
        return None  # it listens, or is over


@contextmanager
def _sockets(process: Process) -> Iterator[list[socket.socket]]:
    """Duplicates of all its sockets, while it lasts; none if it is gone."""
    with ExitStack() as held:
        found: list[socket.socket] = []
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            held.callback(os.close, descriptor)
            if not is_dead(process):
                for number in _sockets_of(process.pid):
                    if (one := _duplicate(descriptor, number)) is not None:
                        found.append(held.enter_context(one))
        yield found


def _sockets_of(pid: int) -> list[int]:
    numbers: list[int] = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                if str(link.readlink()).startswith("socket:"):
                    numbers.append(int(link.name))
    return sorted(numbers)


def _duplicate(process: int, number: int) -> socket.socket | None:
    """The socket behind a descriptor of that process; None: it was closed meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(_SYS_PIDFD_GETFD, process, number, 0)
    if found >= 0:
        return socket.socket(fileno=found)
    code = ctypes.get_errno()
    if code in (errno.EBADF, errno.ESRCH):
        return None
    raise PeerError(
        f"a worker's stream can't be taken hold of ({os.strerror(code)}): the system must let this "
        f"user trace his own processes (kernel.yama.ptrace_scope, the container's seccomp rules)"
    )


def shut(stream: socket.socket) -> bool:
    """Break it for both ends; False: it was broken already."""
    try:
        stream.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True


def garble(stream: socket.socket) -> int:
    """Write what nobody means into it, for its other end to read; how many bytes it took."""
    try:
        return stream.send(_GARBAGE, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return 0


def is_over(stream: socket.socket) -> bool:
    """Whether one side of a TCP connection has ended it."""
    try:
        return stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED
    except OSError:
        return True
