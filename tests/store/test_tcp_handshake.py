"""Who does not prove that it knows the key reads nothing, writes nothing and holds nothing."""

import errno
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from owner_process import shape_of
from tcp_kit import PAGE_BYTES, PAGES, TIMEOUT_S, offered, reading, sealed_region, serving

from antiphon.core.transfer import MOST_ROWS
from antiphon.errors import PeerError, UsageError
from antiphon.store.transfer import Miss, OwnedRegion
from antiphon.store.transfer.tcp import PageClient, PageServer, ServerLimits, page_server
from antiphon.store.transfer.tcp.frames import Request
from antiphon.store.transfer.tcp.handshake import RefusedError, Shape, introduce
from antiphon.store.transfer.tcp.handshake_places import HandshakePlaces
from antiphon.types import DataAccess

CHALLENGE_BYTES, ANSWER_BYTES, PROOF_BYTES = 42, 50, 32
LIMITS = ServerLimits(handshake_s=0.5, handshakes=4, connections=8, stall_s=0.5)


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with serving(sealed_region(), limits=LIMITS) as made:
        yield made


@pytest.fixture(scope="module")
def access(server: PageServer) -> DataAccess:
    return server.admit()


def connected(server: PageServer) -> socket.socket:
    host, port = server.endpoints[0].removeprefix("tcp://").split(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_S)
    connection.settimeout(TIMEOUT_S)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the other side ends."""
    data = b""
    try:
        while more := connection.recv(1 << 16):
            data += more
    except ConnectionResetError:
        pass
    return data


def other_key(access: DataAccess) -> DataAccess:
    return replace(access, key=bytes(32))


def other_id(access: DataAccess) -> DataAccess:
    return replace(access, key_id=bytes(16))


@pytest.mark.parametrize("forged", [other_key, other_id])
def test_another_key_opens_nothing_and_a_pull_ends_at_once(access: DataAccess, forged) -> None:
    own = OwnedRegion(shape_of(PAGES, PAGE_BYTES))
    with reading(forged(access), own) as client:
        pulls = offered(range(3))
        began = time.monotonic()
        assert client.pull(pulls, 600.0) == (False,) * 3
        assert time.monotonic() - began < 300, "refused, not late"
        assert client.missed == {Miss.UNREACHED: 3}
        assert "does not take the key" in client.problem
        assert not own.content.any()


def test_a_server_that_does_not_know_the_key_is_not_believed(access: DataAccess) -> None:
    """Somebody who listens in the server's place, and lets everybody in."""
    ours, theirs = socket.socketpair()

    def impostor() -> None:
        theirs.sendall(struct.pack("<8sH32s", b"antiphDS", 1, bytes(32)))
        theirs.recv(ANSWER_BYTES + PROOF_BYTES)
        theirs.sendall(struct.pack("<QQ16s", PAGE_BYTES, PAGES, bytes(16)) + bytes(PROOF_BYTES))

    thread = threading.Thread(target=impostor)
    thread.start()
    with ours, theirs, pytest.raises(RefusedError, match="does not know the key"):
        introduce(ours, access.key_id, access.key, TIMEOUT_S, sealed=False)
    thread.join()


def test_nothing_is_said_to_a_stranger_but_the_challenge(server: PageServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
        assert len(rest_of(connection)) <= CHALLENGE_BYTES
    with connected(server) as first, connected(server) as second:
        assert first.recv(CHALLENGE_BYTES) != second.recv(CHALLENGE_BYTES)


def test_a_proof_can_be_used_once(server: PageServer, access: DataAccess) -> None:
    """What was overheard opens no other connection; what the server said opens none to it."""
    heard: list[bytes] = []

    class Overheard(socket.socket):
        def sendall(self, data, *flags) -> None:  # type: ignore[override]
            heard.append(bytes(data))
            super().sendall(data, *flags)

    with connected(server) as plain:
        with Overheard(fileno=plain.detach()) as connection:
            session = introduce(connection, access.key_id, access.key, TIMEOUT_S, sealed=False)
        assert session.shape == Shape.of(sealed_region().header)
    with connected(server) as connection:
        connection.recv(CHALLENGE_BYTES)
        connection.sendall(heard[0])
        assert rest_of(connection) == b""


@settings(max_examples=30, deadline=None)
@given(data=st.binary(min_size=1, max_size=200))
def test_no_bytes_of_a_stranger_get_an_answer(server: PageServer, data: bytes) -> None:
    with connected(server) as connection:
        challenge = connection.recv(CHALLENGE_BYTES)
        assert len(challenge) == CHALLENGE_BYTES
        connection.sendall(data.ljust(ANSWER_BYTES + PROOF_BYTES, b"\0"))
        assert rest_of(connection) == b""


def test_the_silent_are_left_and_do_not_keep_others_out(
    server: PageServer, access: DataAccess
) -> None:
    """A byte now and then does not help: the time is for all of the handshake."""
    silent = [connected(server) for _ in range(3 * LIMITS.handshakes)]
    try:
        with reading(access, OwnedRegion(shape_of(PAGES, PAGE_BYTES))) as client:
            assert all(client.pull(offered(range(PAGES)), TIMEOUT_S))
        for connection in silent:
            assert len(rest_of(connection)) <= CHALLENGE_BYTES
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_whoever_is_silent_loses_its_place_to_who_comes_after_it(address: str) -> None:
    """However patient the server is, and wherever they come from: the taker's own address too."""
    limits = ServerLimits(handshake_s=600.0, handshakes=8, handshakes_of_one_address=4)
    with serving(sealed_region(), limits=limits) as server:
        host, port = server.endpoints[0].removeprefix("tcp://").split(":")
        to, source = (host, int(port)), (address, 0)
        silent = [
            socket.create_connection(to, TIMEOUT_S, source_address=source)
            for _ in range(3 * limits.handshakes)
        ]
        try:
            with reading(server.admit(), OwnedRegion(shape_of(PAGES, PAGE_BYTES))) as client:
                assert all(client.pull(offered(range(PAGES)), TIMEOUT_S)), client.problem
            wait_for(lambda: server.counts()["strangers"] >= 2 * limits.handshakes)
            assert silent[0].recv(CHALLENGE_BYTES + 1) == b"" or rest_of(silent[0]) == b""
        finally:
            for connection in silent:
                connection.close()


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_places_are_bounded_and_who_goes_is_of_the_crowd(guests: list[tuple[int, bool]]) -> None:
    places: HandshakePlaces[int] = HandshakePlaces(6, 3)
    there: dict[int, str] = {}
    for number, (host, leaves) in enumerate(guests):
        address = str(host)
        shares = Counter(there.values())
        goes = places.enter(number, address)
        if shares[address] >= 3:
            assert goes is not None
            assert there[goes] == address
        elif len(there) >= 6:
            assert goes is not None
            assert shares[there[goes]] == max(shares.values())
        else:
            assert goes is None
        if goes is not None:
            alike = [one for one, at in there.items() if at == there[goes]]
            assert goes == alike[0], "the longest there"
            del there[goes]
            assert not places.leave(goes)
        there[number] = address
        if leaves:
            assert places.leave(number)
            del there[number]
        assert list(places) == list(there)


def test_where_threads_run_out_a_server_and_a_taker_go_on_later(monkeypatch) -> None:
    own, start = OwnedRegion(shape_of(PAGES, PAGE_BYTES)), threading.Thread.start
    none: set[str] = {"kv-serve"}
    refused: list[str] = []

    def starting(thread: threading.Thread) -> None:
        if thread.name.startswith(tuple(none)):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with serving(sealed_region()) as server:
        monkeypatch.setattr(threading.Thread, "start", starting)
        with connected(server) as connection:
            assert rest_of(connection) == b""
        assert refused
        none.clear()
        none.add("kv-read")
        with reading(server.admit(), own) as client:
            assert not any(client.pull(offered(range(3)), 600.0))
            assert "can't start new thread" in client.problem
            none.clear()
            none.add("nobody")
            assert all(client.pull(offered(range(3)), TIMEOUT_S))
            assert client.problem == ""


@pytest.mark.parametrize(
    "request_bytes",
    [
        Request(0, 0, 0, PAGE_BYTES).encoded(),
        Request(0, MOST_ROWS + 1, 0, 256).encoded(),
        Request(0, 2**32 - 1, 0, PAGE_BYTES).encoded(),
        Request(0, 1, 0, PAGE_BYTES + 64).encoded(),
        Request(0, 1, 0, 2**64 - 64).encoded(),
        Request(0, 1, 2**64 - 64, 0).encoded(),
        Request(0, 1, 64, 64).encoded(),
        Request(0, 1, 1, PAGE_BYTES).encoded(),
        Request(0, MOST_ROWS, 0, PAGE_BYTES).encoded(),
    ],
)
def test_huge_and_odd_counts_end_the_connection(
    server: PageServer, access: DataAccess, request_bytes: bytes
) -> None:
    with connected(server) as connection:
        introduce(connection, access.key_id, access.key, TIMEOUT_S, sealed=False)
        connection.settimeout(TIMEOUT_S)
        connection.sendall(request_bytes)
        assert rest_of(connection) == b""
    assert server.counts()["bytes"] >= 0


def test_who_stops_reading_is_left(server: PageServer, access: DataAccess) -> None:
    with connected(server) as connection:
        introduce(connection, access.key_id, access.key, TIMEOUT_S, sealed=False)
        rows = b"".join(struct.pack("<QQ", page, 2) for page in range(PAGES))
        asked = Request(0, PAGES, 0, PAGE_BYTES).encoded() + rows
        connection.sendall(asked * 64)
        wait_for(lambda: server.counts()["connections"] == 0)


def test_a_key_that_was_revoked_ends_its_connections_and_no_others(server: PageServer) -> None:
    first, second = server.admit(), server.admit()
    regions = [OwnedRegion(shape_of(PAGES, PAGE_BYTES)) for _ in range(2)]
    with reading(first, regions[0]) as gone, reading(second, regions[1]) as stays:
        for client in (gone, stays):
            assert all(client.pull(offered(range(4)), TIMEOUT_S))
        server.dismiss(first)
        assert not any(gone.pull(offered(range(4)), TIMEOUT_S))
        assert all(stays.pull(offered(range(4)), TIMEOUT_S))


def test_encryption_can_be_demanded() -> None:
    own = OwnedRegion(shape_of(PAGES, PAGE_BYTES))
    with serving(sealed_region(), must_seal=True) as server:
        access = server.admit()
        assert access.sealed
        with reading(replace(access, sealed=False), own) as client:
            assert not any(client.pull(offered(range(2)), TIMEOUT_S))
        with reading(access, own) as client:
            assert all(client.pull(offered(range(2)), TIMEOUT_S))


def test_pages_of_another_layout_are_refused(server: PageServer, access: DataAccess) -> None:
    own = OwnedRegion(replace(shape_of(PAGES, PAGE_BYTES), layout="other"))
    with reading(access, own) as client:
        assert not any(client.pull(offered(range(2)), TIMEOUT_S))
        assert "another layout" in client.problem


def test_addresses_that_are_none_are_refused_by_name() -> None:
    owner = sealed_region(pages=1)
    with pytest.raises(UsageError, match=r"'10\.0\.0\.1:5' is no address"):
        PageServer(owner, ["tcp://127.0.0.1:0", "10.0.0.1:5"])
    with pytest.raises(UsageError, match=r"^KV: can't listen on tcp://192\.0\.2\.1:5: "):
        PageServer(owner, ["tcp://192.0.2.1:5"])
    access = DataAccess(endpoints=(), key_id=bytes(16), key=bytes(32))
    with pytest.raises(PeerError, match="no address"):
        PageClient(access, owner)


def test_whoever_has_a_port_is_named_with_the_setting() -> None:
    owner = sealed_region(pages=1)
    with serving(owner) as server:
        where = server.endpoints[0].removeprefix("tcp://")
        told = rf"port {where} is taken by `.*` \(pid {os.getpid()}\): stop that, or choose another"
        with pytest.raises(UsageError, match=f"^KV: {told}"):
            PageServer(owner, server.endpoints)
        with pytest.raises(UsageError, match=f"^network.worker_port: {told}"):
            PageServer(owner, server.endpoints, setting="network.worker_port")


def test_a_server_without_descriptors_listens_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    owner = sealed_region(pages=1)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"open files .*ulimit"):
        patch.setattr(page_server, "warm_up_owner", lambda region: None)
        patch.setattr(socket, "socketpair", none_left)
        PageServer(owner, [place])
    PageServer(owner, [place]).close()


def test_a_key_is_not_printed(access: DataAccess) -> None:
    assert "key=" not in repr(access).replace("key_id=", "")


def wait_for(what) -> None:
    ends = time.monotonic() + TIMEOUT_S
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.01)
