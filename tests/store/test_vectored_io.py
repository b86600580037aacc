"""Moving bytes ends when nobody waits any more, whatever the other side does meanwhile."""

import socket
import threading
import time

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
def test_bytes_that_trickle_are_no_reason_to_go_on(move, trickling, patience) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        tick(ours, TICK_S)

        def other() -> None:
            try:
                trickling(theirs)
            except OSError:
                pass
            finally:
                theirs.shutdown(socket.SHUT_RDWR)

        room = np.zeros(64 << 20, np.uint8)
        work = threading.Thread(target=other)
        work.start()
        try:
            with pytest.raises(StoppedError):
                move(ours.fileno(), areas_in(room), patience())
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            work.join()


@pytest.mark.parametrize("seconds", [None, 1e6, float("inf")])
def test_who_has_long_to_wait_gets_all(seconds: float | None) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        tick(ours, TICK_S)
        work = threading.Thread(target=lambda: theirs.sendall(bytes(range(256)) * 4096))
        work.start()
        got = np.zeros(256 * 4096, np.uint8)
        receive_all(ours.fileno(), areas_in(got), Patience(600.0, TICK_S, until(seconds)))
        work.join()
        assert (got.reshape(-1, 256) == np.arange(256)).all()
