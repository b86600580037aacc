"""Sending and receiving lists of memory areas, given by arrays of addresses: no object per page.

Python's own `sendmsg` wants a buffer object for each area, and takes the interpreter lock again
after each packet's worth; here one call moves a whole slice.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from antiphon.errors import PeerError

Vectors = npt.NDArray[np.uint64]
"""[areas, 2] of address and bytes, as `struct iovec`; none is empty."""

Idle = Callable[[int], None]
"""Called with the bytes moved so far when nothing has moved for one tick; raises to give up."""

_MOST_AREAS = 1024
"""UIO_MAXIOV of Linux: so many in one call."""


class _Message(ctypes.Structure):
    """`struct msghdr`."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_bytes", ctypes.c_uint32),
        ("areas", ctypes.c_void_p),
        ("area_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


def _call(name: str) -> Callable[..., int]:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    function.restype = ctypes.c_ssize_t
    return function


_sendmsg, _recvmsg = _call("sendmsg"), _call("recvmsg")


def tick(connection: socket.socket, seconds: float) -> None:
    """Have calls on this blocking socket return after so long without progress."""
    whole, rest = divmod(seconds, 1)
    time = struct.pack("ll", int(whole), int(rest * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)


def vectors_of(*arrays: npt.NDArray) -> Vectors:
    """The memory of contiguous arrays, which must outlive the call that it is for."""
    rows = [(one.ctypes.data, one.nbytes) for one in arrays if one.nbytes]
    return np.array(rows, np.uint64).reshape(-1, 2)


def send_all(fd: int, vectors: Vectors, idle: Idle, *, more: bool = False) -> None:
    """Send all areas in order; consumes `vectors`. `more` follows at once.

    Raises `PeerError` if the peer went away, and what `idle` raises.
    """
    flags = socket.MSG_NOSIGNAL | (socket.MSG_MORE if more else 0)
    _move(_sendmsg, fd, vectors, flags, idle)


def receive_all(fd: int, vectors: Vectors, idle: Idle) -> None:
    """Fill all areas in order; consumes `vectors`. Raises like `send_all`."""
    _move(_recvmsg, fd, vectors, socket.MSG_WAITALL, idle)


def _move(call: Callable[..., int], fd: int, vectors: Vectors, flags: int, idle: Idle) -> None:
    first, moved = 0, 0
    while first < len(vectors):
        areas = vectors[first : first + _MOST_AREAS]
        message = _Message(areas=areas.ctypes.data, area_count=len(areas))
        done = call(fd, ctypes.addressof(message), flags)
        if done < 0:
            _judge(ctypes.get_errno(), idle, moved)
        elif done == 0:
            raise PeerError("the peer closed the connection")
        else:
            moved += done
            first += _consumed(areas, done)


def _judge(number: int, idle: Idle, moved: int) -> None:
    if number in (errno.EAGAIN, errno.EWOULDBLOCK):
        idle(moved)
    elif number != errno.EINTR:
        raise PeerError(f"the connection broke: {os.strerror(number)}")


def _consumed(areas: Vectors, done: int) -> int:
    """How many areas are whole; what was moved of the next one is cut off."""
    ends = np.cumsum(areas[:, 1])
    whole = int(np.searchsorted(ends, np.uint64(done), side="right"))
    if whole < len(areas):
        begun = np.uint64(done) - (ends[whole - 1] if whole else np.uint64(0))
        areas[whole, 0] += begun
        areas[whole, 1] -= begun
    return whole
