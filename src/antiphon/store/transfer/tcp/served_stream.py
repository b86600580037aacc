"""One taker's connection to a server of pages: handshake, then its requests, on its own thread."""

import socket
from contextlib import suppress

import numpy as np

from antiphon.store.transfer.region import OwnedRegion
from antiphon.types import Seconds

from .handshake import KeyOf, Session, Shape, greet
from .served_slices import served_slices
from .vectored_io import Patience, tick

_TICK_S: Seconds = 0.5


class ServedStream:
    """`greet`, then `run` serves until the connection is over; `close` may come from any thread.

    `counts` int64 [3] (`served_slices`) grow; only its thread writes them.
    """

    def __init__(self, connection: socket.socket, region: OwnedRegion, *, stall_s: Seconds) -> None:
        self.counts = np.zeros(3, np.int64)
        self.session: Session | None = None
        self._connection = connection
        self._region = region
        self._patience = Patience(stall_s, min(_TICK_S, stall_s))

    def greet(self, key_of: KeyOf, timeout_s: Seconds, *, must_seal: bool) -> None:
        """The handshake. Raises `PeerError`."""
        shape = Shape.of(self._region.header)
        self.session = greet(self._connection, key_of, shape, timeout_s, must_seal=must_seal)

    def run(self) -> None:
        """Answer requests. Raises `PeerError` when that is over, whatever the reason."""
        assert self.session is not None
        self._connection.settimeout(None)
        tick(self._connection, self._patience.tick_s)
        slices = served_slices(self._connection.fileno(), self.session, self._region)
        slices.run(self.counts, self._patience)

    def close(self) -> None:
        """End it: whoever waits in `run` wakes up."""
        self._patience.stopped[0] = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
