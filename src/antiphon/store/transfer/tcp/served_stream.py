"""One taker's connection to a server of pages: its requests are answered one after the other.

    accepted ──► handshake ──► request ──► check ─► send from page memory ─► check again ──┐
                                  ▲                                                        │
                                  └────────────────────────────────────────────────────────┘

On a thread of its own, which waits without the interpreter lock. Nothing that a taker says is
trusted: each count has a limit, and whatever is odd ends this connection and no other.
"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from antiphon.errors import PeerError
from antiphon.store.transfer.region import OwnedRegion
from antiphon.types import Seconds

from .channel import Channel, channel_of
from .frames import ROW_BYTES, Reply, Request
from .handshake import KeyOf, Session, Shape, greet
from .slice_kernels import areas_of, check_rows, recheck_rows
from .vectored_io import Vectors, tick, vectors_of

TICK_S: Seconds = 1.0


class ClosedError(PeerError):
    """The connection is not wanted any more."""


@dataclass(slots=True)
class Served:
    """What one connection has sent; only its thread writes."""

    pages: int = 0
    bytes: int = 0
    refused_pages: int = 0


class ServedStream:
    """`run` serves until the connection is over; `close` may come from any thread."""

    def __init__(
        self, connection: socket.socket, region: OwnedRegion, *, stall_s: Seconds
    ) -> None:
        self.served = Served()
        self.session: Session | None = None
        self._connection = connection
        self._region = region
        self._header = region.header
        self._generations_at: int = region.generations.ctypes.data
        self._pages_at: int = region.content.ctypes.data
        self._stall_s = stall_s
        self._closed = False

    def greet(self, key_of: KeyOf, timeout_s: Seconds, *, must_seal: bool) -> None:
        """The handshake. Raises `PeerError`."""
        shape = Shape.of(self._header)
        self.session = greet(self._connection, key_of, shape, timeout_s, must_seal=must_seal)

    def run(self) -> None:
        """Answer requests. Raises `PeerError` when that is over, whatever the reason."""
        assert self.session is not None
        self._connection.settimeout(None)
        tick(self._connection, TICK_S)
        channel = channel_of(self._connection, self.session)
        head = np.empty(Request.FORMAT.size, np.uint8)
        while True:
            channel.receive(vectors_of(head), self._idle(patient=True))
            request = Request.decoded(head.tobytes(), self._header.page_bytes)
            rows = np.empty((request.rows, 2), np.uint64)
            assert rows.nbytes == request.rows * ROW_BYTES
            channel.receive(vectors_of(rows), self._idle())
            self._answer(channel, request, rows)

    def close(self) -> None:
        """End it: whoever waits in `run` wakes up."""
        self._closed = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, channel: Channel, request: Request, rows: np.ndarray) -> None:
        verdicts = np.empty(request.rows, np.uint8)
        good = check_rows(self._generations_at, self._header.pages, rows, verdicts)
        head = np.frombuffer(Reply(request.number, request.rows).encoded(), np.uint8)
        first = vectors_of(head, verdicts)
        message = np.concatenate((first, self._areas(request, rows, verdicts)))
        channel.send(message, self._idle(), more=True)
        recheck_rows(self._generations_at, rows, verdicts)
        channel.send(vectors_of(verdicts), self._idle())
        self.served.pages += good
        self.served.bytes += good * (request.end - request.start)
        self.served.refused_pages += request.rows - good

    def _areas(self, request: Request, rows: np.ndarray, verdicts: np.ndarray) -> Vectors:
        areas = np.empty((request.rows, 2), np.uint64)
        count = areas_of(
            self._pages_at,
            self._header.page_bytes,
            request.start,
            request.end,
            np.ascontiguousarray(rows[:, 0]),
            verdicts,
            areas,
        )
        return areas[:count]

    def _idle(self, *, patient: bool = False) -> Callable[[int], None]:
        """What to do while nothing moves; `patient`: between requests a taker may be silent."""
        since, before = time.monotonic(), 0

        def idle(moved: int) -> None:
            nonlocal since, before
            if self._closed:
                raise ClosedError("closed here")
            now = time.monotonic()
            if moved > before or (patient and not moved):
                since, before = now, moved
            elif now - since >= self._stall_s:
                raise PeerError(f"the taker did not move for {self._stall_s} s")

        return idle
