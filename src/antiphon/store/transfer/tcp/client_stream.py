"""One connection to a server of pages, and the thread that asks and receives over it.

While a slice comes the next one is asked for already, so that the wire never waits for a question.
A connection that breaks, stalls or says something odd is closed, and what it was asked for is given
back; one that had been idle and is found dead is opened again without blame.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from antiphon.core.tcp_endpoint import TcpEndpoint
from antiphon.core.transfer import Slice
from antiphon.errors import PeerError
from antiphon.store.transfer.page_copy import GOOD, IMPOSSIBLE, OVERTAKEN, STALE
from antiphon.store.transfer.region_header import RegionHeader
from antiphon.types import DataAccess, Seconds

from .channel import Channel, channel_of
from .data_socket import for_bulk
from .frames import MOST_OUTSTANDING, Reply, Request
from .handshake import RefusedError, Shape, introduce
from .reading import Reading
from .vectored_io import tick, vectors_of

_BEFORE = np.zeros(256, np.bool_)
_BEFORE[[GOOD, STALE, IMPOSSIBLE]] = True
"""Verdicts that an owner may give before it sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """How patient a stream is."""

    connect_s: Seconds = 1.0
    """Connection and handshake."""
    stall_s: Seconds = 1.0
    """Nothing came for so long though something was asked for."""
    tick_s: Seconds = 0.02
    """So soon it notices that nobody waits any more."""


class Orders(Protocol):
    """What tells a stream what to do, and hears of it (`PageClient`)."""

    def next_for(self, stream: "ClientStream") -> list[Slice] | None: ...  # noqa: D102
    def reading(self, one: Slice) -> Reading: ...  # noqa: D102
    def wanted(self, one: Slice) -> bool: ...  # noqa: D102
    def connected(self, path: int, round_trip_s: Seconds) -> None: ...  # noqa: D102
    def came(self, one: Slice, path: int) -> None: ...  # noqa: D102
    def failed(  # noqa: D102
        self, path: int, slices: "deque[Slice]", problem: str, *, blamed: bool, refused: bool
    ) -> None: ...


class UnwantedError(PeerError):
    """Nobody waits for what was asked for."""


class StalledError(PeerError):
    """Nothing came for long."""


class ClientStream(threading.Thread):
    """Runs until its `orders` say so."""

    def __init__(
        self,
        orders: Orders,
        path: int,
        endpoint: TcpEndpoint,
        access: DataAccess,
        header: RegionHeader,
        limits: StreamLimits,
    ) -> None:
        super().__init__(name=f"kv-read-{endpoint.host}", daemon=True)
        self.path = path
        self.outstanding: deque[Slice] = deque()
        self._orders = orders
        self._endpoint = endpoint
        self._access = access
        self._shape = Shape.of(header)
        self._limits = limits
        self._connection: socket.socket | None = None
        self._channel: Channel | None = None
        self._asked = 0
        self._received = 0
        self._was_idle = False

    @property
    def connected(self) -> bool:
        """Whether it has a connection, dead or alive."""
        return self._channel is not None

    @property
    def room(self) -> int:
        """How many more slices may be asked for."""
        return MOST_OUTSTANDING - len(self.outstanding)

    def run(self) -> None:
        """See the module."""
        try:
            while (slices := self._orders.next_for(self)) is not None:
                self._was_idle = not self.outstanding and self._received > 0
                self.outstanding.extend(slices)
                try:
                    if self._channel is None:
                        self._connect()
                    else:
                        self._exchange(self._channel, slices)
                except PeerError as error:
                    self._lost(error)
        finally:  # after a bug too nobody waits for what it was asked for
            self._lost(UnwantedError("the stream has ended"))

    # ── what it does ─────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        host, port = self._endpoint.host, self._endpoint.port
        deadline = time.monotonic() + self._limits.connect_s
        try:
            self._connection = socket.create_connection((host, port), self._limits.connect_s)
        except OSError as error:
            raise PeerError(f"{self._endpoint} can't be reached: {error}") from None
        for_bulk(self._connection)
        began = time.monotonic()
        access = self._access
        session = introduce(
            self._connection, access.key_id, access.key, deadline - began, sealed=access.sealed
        )
        round_trip_s = time.monotonic() - began
        if not session.shape.same_pages(self._shape):
            raise RefusedError(f"pages of {self._endpoint} have another layout than ours")
        self._connection.settimeout(None)
        tick(self._connection, self._limits.tick_s)
        self._channel = channel_of(self._connection, session)
        self._asked = self._received = 0
        self._orders.connected(self.path, round_trip_s)

    def _exchange(self, channel: Channel, slices: list[Slice]) -> None:
        """Ask for `slices`; receive the one that was asked for first."""
        for one in slices:
            self._ask(channel, one)
        one = self.outstanding[0]
        self._receive(channel, one)
        self._received += 1
        self.outstanding.popleft()
        self._orders.came(one, self.path)

    def _ask(self, channel: Channel, one: Slice) -> None:
        reading = self._orders.reading(one)
        rows = reading.rows_of(one)
        start, end = reading.cut.parts[one.part]
        head = Request(self._asked, len(rows), start, end).encoded()
        self._asked = (self._asked + 1) % 2**32
        message = vectors_of(np.frombuffer(head, np.uint8), rows)
        channel.send(message, self._idle())

    def _receive(self, channel: Channel, one: Slice) -> None:
        reading = self._orders.reading(one)
        first, end = reading.cut.rows_of(one.group)
        rows, idle = end - first, self._idle()
        head, verdicts = np.empty(Reply.FORMAT.size, np.uint8), np.empty(rows, np.uint8)
        channel.receive(vectors_of(head, verdicts), idle)
        Reply(self._received % 2**32, rows).check(head.tobytes())
        if not _BEFORE[verdicts].all():
            raise PeerError("a reply with a verdict that there is not")
        after = np.empty(rows, np.uint8)
        areas = reading.areas(one, verdicts)
        channel.receive(np.concatenate((areas, vectors_of(after))), self._idle())
        if not ((after == verdicts) | ((after == OVERTAKEN) & (verdicts == GOOD))).all():
            raise PeerError("a reply that contradicts itself")
        reading.blame(one, after)

    # ── how it ends ──────────────────────────────────────────────────────────────────────────

    def _idle(self) -> Callable[[int], None]:
        """Gives up when nobody waits, or nothing has come for long."""
        since, before = time.monotonic(), 0

        def idle(moved: int) -> None:
            nonlocal since, before
            now = time.monotonic()
            if moved > before:
                since, before = now, moved
            elif now - since >= self._limits.stall_s:
                raise StalledError(f"nothing came for {self._limits.stall_s} s")
            if self.outstanding and not self._orders.wanted(self.outstanding[0]):
                raise UnwantedError("nobody waits any more")

        return idle

    def _lost(self, error: PeerError) -> None:
        slices, self.outstanding = self.outstanding, deque()
        found_dead = self._was_idle and not isinstance(error, StalledError)
        self._close()
        self._orders.failed(
            self.path,
            slices,
            str(error),
            blamed=not (found_dead or isinstance(error, UnwantedError)),
            refused=isinstance(error, RefusedError),
        )

    def _close(self) -> None:
        self._channel = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
