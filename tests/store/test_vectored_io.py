"""Moving bytes ends when nobody waits any more, whatever the other side does meanwhile."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from antiphon.store.transfer.tcp.vectored_io import (
    Patience,
    StoppedError,
    areas_in,
    receive_all,
    send_all,
    tick,
    until,
)

TICK_S = 0.01
BITS, BIT_S = 2000, 0.001
"""So much is moved by one who trickles: then it is gone, which is another error."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection: a call on a Unix socket waits a tick for each piece anew."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        tick(ours, TICK_S)
        yield ours, theirs


def trickling_out(other: socket.socket) -> None:
    for _ in range(BITS):
        other.send(bytes(64))
        time.sleep(BIT_S)


def trickling_in(other: socket.socket) -> None:
    for _ in range(BITS):
        if not other.recv(4096):
            return
        time.sleep(BIT_S)


def already() -> Patience:
    patience = Patience(600.0, TICK_S)
    patience.stopped[0] = 1
    return patience


def soon() -> Patience:
    return Patience(600.0, TICK_S, until(0.05))


@pytest.mark.parametrize("patience", [already, soon])
@pytest.mark.parametrize(
    ("move", "trickling"), [(receive_all, trickling_out), (send_all, trickling_in)]
)
def test_bytes_that_trickle_are_no_reason_to_go_on(pair, move, trickling, patience) -> None:
    ours, theirs = pair

    def other() -> None:
        with suppress(OSError):
            trickling(theirs)
        with suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)
        gone.set()

    gone = threading.Event()
    work = threading.Thread(target=other)
    room = np.zeros(64 << 20, np.uint8)
    work.start()
    try:
        with pytest.raises(StoppedError):
            move(ours.fileno(), areas_in(room), patience())
        assert not gone.is_set()
    finally:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.close()  # a reset: nothing is left to be read
        work.join()


@pytest.mark.parametrize("seconds", [None, 1e6, float("inf")])
def test_who_has_long_to_wait_gets_all(pair, seconds: float | None) -> None:
    ours, theirs = pair
    work = threading.Thread(target=lambda: theirs.sendall(bytes(range(256)) * 4096))
    work.start()
    got = np.zeros(256 * 4096, np.uint8)
    receive_all(ours.fileno(), areas_in(got), Patience(600.0, TICK_S, until(seconds)))
    work.join()
    assert (got.reshape(-1, 256) == np.arange(256)).all()
