"""One connection to a server of pages, and the thread that asks and receives over it.

While a slice comes the next one is asked for already, so that the wire never waits for a question.
A connection that breaks, stalls or says something odd is closed, and what it was asked for is given
back; one that had been idle and is found dead is opened again without blame.
"""

import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from antiphon.core.tcp_endpoint import TcpEndpoint
from antiphon.core.transfer import Slice
from antiphon.errors import PeerError
from antiphon.store.transfer.region_header import RegionHeader
from antiphon.types import DataAccess, Seconds

from .asked_slices import AskedSlices, asked_slices
from .data_socket import for_bulk
from .frames import MOST_OUTSTANDING
from .handshake import RefusedError, Shape, introduce
from .reading import Reading
from .vectored_io import Patience, StalledError, StoppedError, tick


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
    def connected(self, path: int, round_trip_s: Seconds) -> None: ...  # noqa: D102
    def came(self, one: Slice, path: int) -> None: ...  # noqa: D102
    def failed(  # noqa: D102
        self, path: int, slices: "deque[Slice]", problem: str, *, blamed: bool, refused: bool
    ) -> None: ...


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
        self._slices: AskedSlices | None = None
        self._asked = 0
        self._received = 0
        self._was_idle = False

    @property
    def connected(self) -> bool:
        """Whether it has a connection, dead or alive."""
        return self._slices is not None

    @property
    def room(self) -> int:
        """How many more slices may be asked for."""
        return MOST_OUTSTANDING - len(self.outstanding)

    def run(self) -> None:
        """See the module."""
        try:
            while (new := self._orders.next_for(self)) is not None:
                self._was_idle = not self.outstanding and self._received > 0
                self.outstanding.extend(new)
                try:
                    if self._slices is None:
                        self._connect()
                    else:
                        self._exchange(self._slices, new)
                except PeerError as error:
                    self._lost(error)
        finally:  # after a bug too nobody waits for what it was asked for
            self._lost(StoppedError("the stream has ended"))

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
        self._slices = asked_slices(self._connection.fileno(), session)
        self._orders.connected(self.path, round_trip_s)

    def _exchange(self, slices: AskedSlices, new: list[Slice]) -> None:
        """Ask for `new` ones; receive the one that was asked for first."""
        for one in new:
            reading = self._orders.reading(one)
            slices.ask(self._asked, one, reading, self._patience(reading))
            self._asked = (self._asked + 1) % 2**32
        one = self.outstanding[0]
        reading = self._orders.reading(one)
        slices.receive(self._received % 2**32, one, reading, self._patience(reading))
        self._received += 1
        self.outstanding.popleft()
        self._orders.came(one, self.path)

    # ── how it ends ──────────────────────────────────────────────────────────────────────────

    def _patience(self, reading: Reading) -> Patience:
        return Patience(self._limits.stall_s, self._limits.tick_s, reading.stopped)

    def _lost(self, error: PeerError) -> None:
        slices, self.outstanding = self.outstanding, deque()
        found_dead = self._was_idle and not isinstance(error, StalledError)
        self._close()
        self._orders.failed(
            self.path,
            slices,
            str(error),
            blamed=not (found_dead or isinstance(error, StoppedError)),
            refused=isinstance(error, RefusedError),
        )

    def _close(self) -> None:
        self._slices, self._asked, self._received = None, 0, 0
        if self._connection is not None:
            self._connection.close()
            self._connection = None
