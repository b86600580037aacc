"""Areas of memory through sockets whose buffers hold a fraction of them."""

import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import PeerError
from antiphon.store.transfer.tcp.vectored_io import (
    Patience,
    StalledError,
    StoppedError,
    areas_in,
    receive_all,
    send_all,
    tick,
)

TICK_S = 0.005
PATIENT = Patience(60.0, TICK_S)


def areas(memory: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Consecutive pieces of `memory`, every second byte of the order swapped: not contiguous."""
    rows, at = [], memory.ctypes.data
    for size in sizes:
        rows.append((at, size))
        at += size
    return np.array(rows, np.uint64).reshape(-1, 2)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30_000), min_size=1, max_size=1500),
    cuts=st.lists(st.integers(1, 30_000), min_size=1, max_size=1500),
    seed=st.integers(0, 99),
)
def test_what_is_sent_in_any_areas_comes_in_any_others(
    sizes: list[int], cuts: list[int], seed: int
) -> None:
    total = min(sum(sizes), sum(cuts))
    sizes, cuts = shortened(sizes, total), shortened(cuts, total)
    sent = np.random.default_rng(seed).integers(0, 256, total, np.uint8)
    got = np.zeros(total, np.uint8)
    order = np.random.default_rng(seed + 1).permutation(len(sizes))
    shuffled = areas(sent, sizes)[order]
    expected = b"".join(
        sent[start : start + size].tobytes()
        for start, size in zip(
            (shuffled[:, 0] - np.uint64(sent.ctypes.data)).tolist(),
            shuffled[:, 1].tolist(),
            strict=True,
        )
    )
    left, right = socket.socketpair()
    with left, right:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for one in (left, right):
            tick(one, TICK_S)
        work = threading.Thread(target=send_all, args=(left.fileno(), shuffled, PATIENT))
        work.start()
        receive_all(right.fileno(), areas(got, cuts), PATIENT)
        work.join()
    assert got.tobytes() == expected


def shortened(sizes: list[int], total: int) -> list[int]:
    """The first of them, `total` in all."""
    kept: list[int] = []
    for size in sizes:
        size = min(size, total - sum(kept))
        if size:
            kept.append(size)
    return kept


def test_silence_is_given_up_but_not_before_the_first_byte_if_that_may_be_late() -> None:
    got = np.zeros(100, np.uint8)
    short = Patience(4 * TICK_S, TICK_S)
    left, right = socket.socketpair()
    with left, right:
        tick(right, TICK_S)
        left.send(b"x" * 40)
        with pytest.raises(StalledError):
            receive_all(right.fileno(), areas_in(got), short)
        assert got.tobytes() == b"x" * 40 + bytes(60)
        late = threading.Timer(20 * TICK_S, left.send, [b"y" * 100])
        late.start()
        receive_all(right.fileno(), areas_in(got), short, patient=True)
        late.join()
        assert got.tobytes() == b"y" * 100


def test_who_is_told_to_stop_stops() -> None:
    got, patience = np.zeros(100, np.uint8), Patience(60.0, TICK_S)
    left, right = socket.socketpair()
    with left, right:
        tick(right, TICK_S)
        stop = threading.Timer(4 * TICK_S, patience.stopped.fill, [1])
        stop.start()
        with pytest.raises(StoppedError):
            receive_all(right.fileno(), areas_in(got), patience, patient=True)
        stop.join()


def test_an_end_in_the_middle_is_the_peers_failure() -> None:
    got = np.zeros(100, np.uint8)
    left, right = socket.socketpair()
    with right:
        left.send(b"x" * 40)
        left.close()
        with pytest.raises(PeerError, match="closed the connection"):
            receive_all(right.fileno(), areas_in(got), PATIENT)
        with pytest.raises(PeerError, match="broke: Broken pipe"):
            send_all(right.fileno(), areas_in(got), PATIENT)
