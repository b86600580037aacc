"""An owner that has the key and says what it likes: no wrong page is good, no other is touched."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from owner_process import content_of, shape_of
from tcp_kit import PAGE_BYTES, PAGES, QUICK, TIMEOUT_S, offered, reading, wrong

from antiphon.errors import PeerError
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.page_copy import GOOD, OVERTAKEN, STALE
from antiphon.store.transfer.tcp.frames import Request
from antiphon.store.transfer.tcp.handshake import Shape, greet
from antiphon.types import DataAccess

KEY_ID, KEY = bytes(16), bytes(range(32))
ASKED = (2, 3, 5)
"""Pages that are pulled; all others must stay as they are."""

Reply = Callable[[Request], bytes]


@contextmanager
def odd_owner(reply: Reply) -> Iterator[DataAccess]:
    """Lets the taker in, and answers each request with `reply`, then no more."""
    shape = Shape.of(OwnedRegion(shape_of(PAGES, PAGE_BYTES)).header)
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(PeerError, OSError):
            greet(connection, lambda _: KEY, shape, TIMEOUT_S, must_seal=False)
            connection.settimeout(TIMEOUT_S)
            while head := connection.recv(Request.FORMAT.size, socket.MSG_WAITALL):
                request = Request.decoded(head, PAGE_BYTES)
                connection.recv(16 * request.rows, socket.MSG_WAITALL)
                connection.sendall(reply(request))

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        yield DataAccess(endpoints=(endpoint,), key_id=KEY_ID, key=KEY)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def pulled(reply: Reply, timeout_s: float) -> tuple[tuple[bool, ...], int]:
    """Which pages are good, and how many of those are wrong."""
    own = OwnedRegion(shape_of(PAGES, PAGE_BYTES))
    own.content[:] = 7
    with odd_owner(reply) as access, reading(access, own, QUICK, streams=1) as client:
        pulls = offered(ASKED)
        good = client.pull(pulls, timeout_s)
    others = [page for page in range(PAGES) if page not in ASKED]
    assert (own.content.reshape(PAGES, -1)[others] == 7).all()
    return good, wrong(own, pulls, good)


def page_bytes(page: int) -> bytes:
    return content_of(page, 2, PAGE_BYTES).tobytes()


def said(number: int, rows: int, before: bytes, content: bytes, after: bytes) -> bytes:
    return struct.pack("<II", number, rows) + before + content + after


ALL_GOOD = bytes([GOOD]) * 3


def test_control_an_owner_that_tells_the_truth_is_believed() -> None:
    content = b"".join(map(page_bytes, ASKED))
    good, bad = pulled(lambda asked: said(asked.number, 3, ALL_GOOD, content, ALL_GOOD), TIMEOUT_S)
    assert good == (True,) * 3
    assert bad == 0


@settings(max_examples=30, deadline=None)
@given(
    before=st.binary(min_size=3, max_size=3),
    after=st.binary(min_size=3, max_size=3),
    number=st.sampled_from([0, 0, 0, 1, 2**32 - 1]),
    rows=st.sampled_from([3, 3, 3, 0, 4, 2**32 - 1]),
    pages=st.lists(st.sampled_from([*ASKED, 0, 9]), max_size=4),
)
def test_whatever_is_said_only_what_was_offered_is_good(
    before: bytes, after: bytes, number: int, rows: int, pages: list[int]
) -> None:
    content = b"".join(map(page_bytes, pages))
    _, bad = pulled(lambda _: said(number, rows, before, content, after), 0.3)
    assert bad == 0


@pytest.mark.parametrize(
    ("before", "after", "good"),
    [
        (ALL_GOOD, bytes([GOOD, OVERTAKEN, GOOD]), (True, False, True)),
        (bytes([GOOD, STALE, GOOD]), bytes([GOOD, STALE, GOOD]), (True, False, True)),
        (bytes([GOOD, STALE, GOOD]), ALL_GOOD, (False, False, False)),
        (bytes([GOOD, 77, GOOD]), bytes([GOOD, 77, GOOD]), (False, False, False)),
    ],
    ids=["overtaken", "stale", "contradicts itself", "no verdict"],
)
def test_what_an_owner_takes_back_is_a_miss(
    before: bytes, after: bytes, good: tuple[bool, ...]
) -> None:
    sent = [page for page, verdict in zip(ASKED, before, strict=True) if verdict != STALE]
    content = b"".join(map(page_bytes, sent))
    timeout_s = TIMEOUT_S if any(good) else 0.3
    outcome, bad = pulled(lambda asked: said(asked.number, 3, before, content, after), timeout_s)
    assert outcome == good
    assert bad == 0


def test_bytes_of_another_page_are_a_miss() -> None:
    content = page_bytes(ASKED[0]) + np.roll(content_of(3, 2, PAGE_BYTES) + 1, 1).tobytes()
    content += page_bytes(ASKED[2])
    outcome, _ = pulled(lambda asked: said(asked.number, 3, ALL_GOOD, content, ALL_GOOD), TIMEOUT_S)
    assert outcome == (True, False, True)
