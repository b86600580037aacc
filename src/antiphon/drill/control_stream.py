"""A worker's stream to its gateway, taken hold of from outside and shut down.

No proxy stands between the two: Linux gives a process of the same user a duplicate of another's
socket (pidfd_getfd, as a debugger may have it), and shutting that down breaks the real stream for
both ends at once.
"""

import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from antiphon.errors import PeerError

from .process_fault import Process, is_dead

_SYS_PIDFD_GETFD = 438
"""The same number on all of Linux's architectures."""


def control_streams(process: Process, gateway: Path) -> list[socket.socket]:
    """Duplicates of the process's sockets that are connected to `gateway`. The caller closes them.

    Raises `PeerError` if the system does not give them.
    """
    found: list[socket.socket] = []
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return []
    try:
        if not is_dead(process):
            found += _connected_to(gateway, process.pid, descriptor)
    finally:
        os.close(descriptor)
    return found


def _connected_to(gateway: Path, pid: int, descriptor: int) -> Iterator[socket.socket]:
    for number in _sockets_of(pid):
        duplicate = _duplicate(descriptor, number)
        if duplicate is None:
            continue
        with suppress(OSError):
            if duplicate.family == socket.AF_UNIX and duplicate.getpeername() == str(gateway):
                yield duplicate
                continue
        duplicate.close()


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
