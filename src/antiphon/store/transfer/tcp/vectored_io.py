"""Sending and receiving lists of memory areas, given by arrays of addresses: no object per page.

Python's own `sendmsg` wants a buffer object for each area, and takes the interpreter lock again
after each packet's worth. Here compiled code calls the system, until all is moved; sockets are
blocking ones whose calls return after a tick (`tick`), so that it notices when to give up.
"""

import os
import socket
import struct
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import types

from antiphon.errors import PeerError
from antiphon.store.transfer.atomic_words import load_int
from antiphon.store.transfer.kernel import kernel
from antiphon.types import Seconds

Areas = npt.NDArray[np.uint64]
"""[areas, 2] of address and bytes, as `struct iovec`; none is empty."""

DONE, CLOSED, STALLED, STOPPED, ODD = 0, -1, -2, -3, -4
"""What moving returns; numbers above 0 are those of system errors."""

MESSAGE_WORDS = 9
"""`struct msghdr` of 64-bit Linux, and a `struct timespec`."""
_TIME = 7
_AREAS, _AREA_COUNT = 2, 3
_MOST_AREAS = 1024
"""UIO_MAXIOV of Linux: so many in one call."""
_WAIT_ALL, _NO_SIGNAL, _MORE = 0x100, 0x4000, 0x8000
_TRY_AGAIN, _INTERRUPTED = 11, 4
_MONOTONIC = 1

_call = types.int64(types.int32, types.int64, types.int32)
_sendmsg = types.ExternalFunction("sendmsg", _call)
_recvmsg = types.ExternalFunction("recvmsg", _call)
_memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_errno_at = types.ExternalFunction("__errno_location", types.int64())


@kernel
def _consumed(areas, count, done):
    """How many areas are whole after `done` bytes; what was moved of the next one is cut off."""
    whole = 0
    left = np.uint64(done)
    while whole < count and areas[whole, 1] <= left:
        left -= areas[whole, 1]
        whole += 1
    if whole < count:
        areas[whole, 0] += left
        areas[whole, 1] -= left
    return whole


@kernel
def _is_over(stopped, message):
    """Whether nobody waits any more. Asked whenever a call returns before all is moved: bytes that
    trickle are no reason to go on."""
    if stopped[0]:
        return True
    if not stopped[1]:
        return False
    _clock_gettime(np.int32(_MONOTONIC), np.int64(message[_TIME:].ctypes.data))
    return np.int64(message[_TIME]) * 1_000_000_000 + np.int64(message[_TIME + 1]) >= stopped[1]


@kernel
def _judged(error, ticks, most_ticks):
    """What becomes of a call that moved nothing."""
    if error == _INTERRUPTED:
        return DONE
    if error != _TRY_AGAIN:
        return error
    return STALLED if ticks >= most_ticks else DONE


@kernel
def receive_areas(fd, areas, count, message, stopped, most_ticks, patient):
    """Fill the first `count` areas, in order; consumes them. Gives up after so many ticks without a
    byte, or when `stopped` [2]; `patient`: no tick counts before the first byte."""
    first, ticks, moved = 0, 0, False
    while first < count:
        message[_AREAS] = np.uint64(areas[first:].ctypes.data)
        message[_AREA_COUNT] = np.uint64(min(count - first, _MOST_AREAS))
        done = _recvmsg(np.int32(fd), np.int64(message.ctypes.data), np.int32(_WAIT_ALL))
        if done > 0:
            first += _consumed(areas[first:], count - first, done)
            ticks, moved = 0, True
        elif done == 0:
            return CLOSED
        else:
            ticks += moved or not patient
            code = _judged(load_int(_errno_at()), ticks, most_ticks)
            if code != DONE:
                return code
        if first < count and _is_over(stopped, message):
            return STOPPED
    return DONE


@kernel
def send_areas(fd, areas, count, message, stopped, most_ticks, more):
    """Send the first `count` areas, in order; consumes them. `more` follows at once."""
    first, ticks = 0, 0
    flags = _NO_SIGNAL | (_MORE if more else 0)
    while first < count:
        message[_AREAS] = np.uint64(areas[first:].ctypes.data)
        message[_AREA_COUNT] = np.uint64(min(count - first, _MOST_AREAS))
        done = _sendmsg(np.int32(fd), np.int64(message.ctypes.data), np.int32(flags))
        if done > 0:
            first += _consumed(areas[first:], count - first, done)
            ticks = 0
        else:
            ticks += 1
            code = _judged(load_int(_errno_at()), ticks, most_ticks)
            if code != DONE:
                return code
        if first < count and _is_over(stopped, message):
            return STOPPED
    return DONE


@kernel
def through_buffer(areas, buffer, fills):
    """Copy areas into `buffer` uint8, one after the other, or out of it if it `fills` them, until
    either ends; consumes areas. Returns how many are whole, and how many bytes were copied."""
    whole, copied = 0, 0
    at = np.int64(buffer.ctypes.data)
    while whole < len(areas) and copied < len(buffer):
        size = min(np.int64(areas[whole, 1]), len(buffer) - copied)
        area = np.int64(areas[whole, 0])
        if fills:
            _memcpy(area, at + copied, size)
        else:
            _memcpy(at + copied, area, size)
        copied += size
        whole += _consumed(areas[whole : whole + 1], 1, size)
    return whole, copied


def until(seconds: Seconds | None) -> npt.NDArray[np.int64]:
    """For how long somebody waits: int64 [2], whether that is over already, and when it is on the
    monotonic clock, in ns; 0: never."""
    if seconds is None:
        return np.zeros(2, np.int64)
    nanoseconds = min(max(0.0, seconds) * 1e9, float(2**62))
    return np.array([0, min(time.monotonic_ns() + int(nanoseconds), 2**62)], np.int64)


@dataclass(slots=True)
class Patience:
    """When moving bytes is given up: after `stall_s` without one, or when `stopped` says so."""

    stall_s: Seconds
    tick_s: Seconds
    stopped: npt.NDArray[np.int64] = field(default_factory=lambda: until(None))

    @property
    def ticks(self) -> int:
        """So many without a byte."""
        return max(1, round(self.stall_s / self.tick_s))


class StoppedError(PeerError):
    """Nobody waits for it any more."""


class StalledError(PeerError):
    """Nothing has moved for long."""


def tick(connection: socket.socket, seconds: Seconds) -> None:
    """Have calls on this blocking socket return after so long without progress."""
    whole, rest = divmod(seconds, 1)
    time = struct.pack("ll", int(whole), int(rest * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)


def areas_in(*arrays: npt.NDArray) -> Areas:
    """The memory of contiguous arrays, which must outlive the call that it is for."""
    rows = [(one.ctypes.data, one.nbytes) for one in arrays if one.nbytes]
    return np.array(rows, np.uint64).reshape(-1, 2)


def new_message() -> npt.NDArray[np.uint64]:
    """Room for one system call's arguments, for one thread."""
    return np.zeros(MESSAGE_WORDS, np.uint64)


def send_all(fd: int, areas: Areas, patience: Patience) -> None:
    """Send all areas. Raises `PeerError`: closed, broken, stalled, stopped."""
    stopped, ticks = patience.stopped, patience.ticks
    check(send_areas(fd, areas, len(areas), new_message(), stopped, ticks, False), patience)


def receive_all(fd: int, areas: Areas, patience: Patience, *, patient: bool = False) -> None:
    """Fill all areas. Raises likewise."""
    stopped, ticks = patience.stopped, patience.ticks
    check(receive_areas(fd, areas, len(areas), new_message(), stopped, ticks, patient), patience)


def check(code: int, patience: Patience) -> None:
    """Raises `PeerError` for all but DONE."""
    if code == DONE:
        return
    if code == CLOSED:
        raise PeerError("the peer closed the connection")
    if code == STALLED:
        raise StalledError(f"nothing moved for {patience.stall_s} s")
    if code == STOPPED:
        raise StoppedError("nobody waits for it any more")
    if code == ODD:
        raise PeerError("the peer said something that contradicts itself")
    raise PeerError(f"the connection broke: {os.strerror(code)}")
