"""The taker's side of one connection after its handshake: asks for slices, and receives them.

What the owner says is checked against what it was asked; what is odd ends the connection.
"""

from typing import Protocol

import numpy as np

from antiphon.core.transfer import Slice
from antiphon.errors import PeerError
from antiphon.store.transfer.page_copy import GOOD, IMPOSSIBLE, OVERTAKEN, STALE

from .frames import HEAD_WORDS, Reply, Request
from .handshake import Session
from .reading import Reading
from .sealed_channel import SealedChannel
from .slice_io import ask, receive
from .slice_room import SliceRoom
from .vectored_io import Patience, areas_in, check

_BEFORE = np.zeros(256, np.bool_)
_BEFORE[[GOOD, STALE, IMPOSSIBLE]] = True
"""Verdicts that an owner may give before it sends."""


class AskedSlices(Protocol):
    """For one thread. Both raise `PeerError`; after that the connection is of no use."""

    def ask(self, number: int, one: Slice, reading: Reading, patience: Patience) -> None:
        """Send a request of that number."""
        ...

    def receive(self, number: int, one: Slice, reading: Reading, patience: Patience) -> None:
        """Receive its reply into the pages; only then is anything of it told to `reading`."""
        ...


def asked_slices(fd: int, session: Session) -> AskedSlices:
    """As the session agreed."""
    if session.sends is None or session.hears is None:
        return PlainAsked(fd)
    return SealedAsked(SealedChannel(fd, session.sends, session.hears))


def _request(number: int, one: Slice, reading: Reading) -> Request:
    first, last = reading.cut.rows_of(one.group)
    start, end = reading.cut.parts[one.part]
    return Request(number, last - first, start, end)


class PlainAsked:
    """Compiled: two calls a slice."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._room = SliceRoom()
        self._head = np.zeros(HEAD_WORDS, np.uint64)

    def ask(self, number: int, one: Slice, reading: Reading, patience: Patience) -> None:
        """See `AskedSlices`."""
        room = self._room
        self._fill(_request(number, one, reading))
        rows, stopped, ticks = reading.rows_of(one), patience.stopped, patience.ticks
        check(ask(self._fd, self._head, rows, room.areas, room.message, stopped, ticks), patience)

    def receive(self, number: int, one: Slice, reading: Reading, patience: Patience) -> None:
        """See `AskedSlices`."""
        room = self._room
        request = _request(number, one, reading)
        self._fill(request)
        targets, checksums = reading.targets_of(one)
        verdicts = room.verdicts[: request.rows]
        code = receive(
            self._fd,
            self._head,
            room.reply,
            room.before,
            room.after,
            room.areas,
            room.message,
            reading.own_pages,
            targets,
            checksums,
            verdicts,
            reading.proves_at_once,
            patience.stopped,
            patience.ticks,
        )
        check(code, patience)
        reading.blame(one, verdicts)

    def _fill(self, request: Request) -> None:
        self._head[:] = np.frombuffer(request.encoded(), np.uint64)


class SealedAsked:
    """Through encrypted records."""

    def __init__(self, channel: SealedChannel) -> None:
        self._channel = channel

    def ask(self, number: int, one: Slice, reading: Reading, patience: Patience) -> None:
        """See `AskedSlices`."""
        head = np.frombuffer(_request(number, one, reading).encoded(), np.uint8)
        self._channel.send(areas_in(head, reading.rows_of(one)), patience)

    def receive(self, number: int, one: Slice, reading: Reading, patience: Patience) -> None:
        """See `AskedSlices`."""
        rows = _request(number, one, reading).rows
        head, verdicts = np.empty(Reply.FORMAT.size, np.uint8), np.empty(rows, np.uint8)
        self._channel.receive(areas_in(head, verdicts), patience)
        Reply(number, rows).check(head.tobytes())
        if not _BEFORE[verdicts].all():
            raise PeerError("a reply with a verdict that there is not")
        after = np.empty(rows, np.uint8)
        areas = np.concatenate((reading.areas(one, verdicts), areas_in(after)))
        self._channel.receive(areas, patience)
        if not ((after == verdicts) | ((after == OVERTAKEN) & (verdicts == GOOD))).all():
            raise PeerError("a reply that contradicts itself")
        if reading.proves_at_once:
            reading.prove_slice(one, after)
        reading.blame(one, after)
