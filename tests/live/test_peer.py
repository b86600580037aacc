"""Workers reach each other's leases and memory; one peer's trouble stays its own."""

import array
import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from link_kit import KV, until
from peer_kit import Owner, Taker, open_descriptors

from antiphon.errors import PeerError
from antiphon.live import door, peer_port
from antiphon.types import (
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    PeerRefusal,
    PeerRefused,
    PeerWelcome,
)
from antiphon.wire import TO_TAKER, Frame, FrameReader, Kind, decode, encode, pack_frame
from antiphon.wire.frame import HEADER_BYTES

pytestmark = pytest.mark.timeout(60)
LEASE = LeaseId("lease")
GONE = LeaseRefused(LEASE, LeaseRefusal.GONE)


async def test_a_lease_is_taken_renewed_and_acknowledged(folder: Path) -> None:
    async with Owner(folder) as owner:
        taker = Taker(owner.path)
        owner.leases.granted[LEASE] = (taker.incarnation, 2)
        assert await taker.client.take(LEASE, 2) == LeaseHeld(LEASE)
        assert await taker.client.renew([LEASE, LeaseId("lost")]) == [
            LeaseRefused(LeaseId("lost"), LeaseRefusal.GONE)
        ]
        assert await taker.client.acknowledge(LEASE, 2) == LeaseHeld(LEASE)
        assert await taker.client.take(LEASE, 2) == GONE
        assert taker.memories == [b"memory of p0"]
        taker.client.close()


def test_it_works_on_the_servers_loop(tmp_path) -> None:
    tmp_path.chmod(0o700)
    uvloop.run(test_a_lease_is_taken_renewed_and_acknowledged(tmp_path))


async def test_only_the_life_and_attempt_of_the_grant_may_take(folder: Path) -> None:
    """The owner names the taker by its stream, never by what a message says."""
    async with Owner(folder) as owner:
        taker, other = Taker(owner.path), Taker(owner.path, name="d1")
        owner.leases.granted[LEASE] = (taker.incarnation, 2)
        foreign = LeaseRefused(LEASE, LeaseRefusal.FOREIGN)
        assert await other.client.take(LEASE, 2) == foreign
        assert await taker.client.take(LEASE, 1) == foreign
        assert await taker.client.acknowledge(LEASE, 3) == foreign
        assert await other.client.renew([LEASE]) == [foreign]
        assert await taker.client.take(LEASE, 2) == LeaseHeld(LEASE)
        for one in (taker, other):
            one.client.close()


async def test_many_renewals_are_few_messages(folder: Path) -> None:
    async with Owner(folder) as owner:
        taker = Taker(owner.path)
        leases = [LeaseId(f"{number}") for number in range(2500)]
        for lease in leases[::2]:
            owner.leases.granted[lease] = (taker.incarnation, 1)
        refused = await taker.client.renew(leases)
        assert [one.lease for one in refused] == leases[1::2]
        assert owner.leases.renewed == leases
        taker.client.close()


async def test_an_idle_connection_that_died_is_made_anew(folder: Path) -> None:
    """Idle for long, and then all calls fail: not here. The memory is not handed over twice."""
    async with Owner(folder) as owner:
        taker = Taker(owner.path)
        owner.leases.granted[LEASE] = (taker.incarnation, 1)
        for _ in range(3):
            assert await taker.client.take(LEASE, 1) == LeaseHeld(LEASE)
            owner.port.new_life("idle for too long")
        assert taker.memories == [b"memory of p0"]
        taker.client.close()


async def test_calls_at_once_share_one_connection(folder: Path) -> None:
    async with Owner(folder) as owner:
        taker = Taker(owner.path)
        owner.leases.granted[LEASE] = (taker.incarnation, 1)
        answers = await asyncio.gather(*(taker.client.take(LEASE, 1) for _ in range(50)))
        assert set(answers) == {LeaseHeld(LEASE)}
        assert owner.port.peers == 1
        assert taker.memories == [b"memory of p0"]
        taker.client.close()
        await until(lambda: owner.port.peers == 0)


async def test_a_new_life_of_the_owner_has_nothing_of_the_old(folder: Path) -> None:
    """A restarted owner is somebody else, though it has the same name and the same socket."""
    async with Owner(folder) as owner:
        taker = Taker(owner.path)
        owner.leases.granted[LEASE] = (taker.incarnation, 1)
        assert await taker.client.take(LEASE, 1) == LeaseHeld(LEASE)
        owner.info = replace(owner.info, incarnation=Incarnation("owner-2"))
        owner.port.new_life()
        before = list(owner.leases.taken)
        assert await taker.client.take(LEASE, 1) == GONE
        assert await taker.client.acknowledge(LEASE, 1) == GONE
        assert await taker.client.renew([LEASE]) == [GONE]
        assert owner.leases.taken == before
        successor = Taker(owner.path, owner_life="owner-2")
        assert await successor.client.take(LEASE, 1) == LeaseHeld(LEASE)
        successor.client.close()


async def test_an_owner_that_is_not_there_is_told_quickly(folder: Path) -> None:
    taker = Taker(folder / "nobody.sock")
    with pytest.raises(PeerError, match="owner p0 can't be reached"):
        await taker.client.take(LEASE, 1)


async def test_whoever_closed_asks_no_more(folder: Path) -> None:
    async with Owner(folder) as owner:
        taker = Taker(owner.path)
        await taker.client.renew([])
        assert await taker.client.take(LEASE, 1) == GONE
        taker.client.close()
        with pytest.raises(PeerError, match="not asked any more"):
            await taker.client.take(LEASE, 1)


@pytest.mark.parametrize("field", ["layout", "page_tokens", "page_bytes"])
async def test_pages_of_another_shape_are_refused_before_any_is_read(folder, field) -> None:
    async with Owner(folder) as owner:
        odd = replace(KV, **{field: "other" if field == "layout" else 32})
        taker = Taker(owner.path, kv=odd)
        with pytest.raises(PeerError, match="pages here are"):
            await taker.client.take(LEASE, 1)
        assert taker.memories == []


async def test_takers_have_limits(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(peer_port, "MAX_PEERS", 1)
    async with Owner(folder) as owner:
        first, second = Taker(owner.path), Taker(owner.path, name="d1")
        assert await first.client.take(LEASE, 1) == GONE
        with pytest.raises(PeerError, match="1 takers are here"):
            await second.client.take(LEASE, 1)
        first.client.close()
        await until(lambda: owner.port.peers == 0)
        assert await second.client.take(LEASE, 1) == GONE
        second.client.close()


async def test_strangers_have_little_time_and_few_places(folder: Path, monkeypatch) -> None:
    """Whoever comes after them waits for a place; nobody is turned away."""
    monkeypatch.setattr(door, "MAX_GREETINGS", 2)
    monkeypatch.setattr(peer_port, "HELLO_TIMEOUT_S", 0.2)
    async with Owner(folder) as owner:
        silent = [await asyncio.open_unix_connection(owner.path) for _ in range(5)]
        most = 0

        def watched() -> bool:
            nonlocal most
            most = max(most, len(owner.port._door._greetings))
            return asking.done()

        taker = Taker(owner.path)
        asking = asyncio.create_task(taker.client.take(LEASE, 1))
        await until(watched)
        assert await asking == GONE
        assert most == 2
        assert owner.port.peers == 1
        taker.client.close()
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()


# What strangers say to an owner.


@pytest.mark.parametrize("kind", [Kind.TAKE, Kind.RENEW_TAKEN, Kind.ACKNOWLEDGE])
async def test_before_hello_nothing_else_is_even_begun_to_be_read(folder: Path, kind: Kind) -> None:
    """The header is enough: a stranger can't make an owner keep a long message."""
    async with Owner(folder) as owner:
        reader, writer = await asyncio.open_unix_connection(owner.path)
        writer.write(pack_frame(Frame(kind, 0, b"x" * 100))[:HEADER_BYTES])
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert owner.leases.taken == []
        writer.close()


async def tell(path: Path, data: bytes) -> bytes:
    """All that the owner answers to these bytes and an end."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_another_version_hears_of_it(folder: Path) -> None:
    async with Owner(folder) as owner:
        data = await tell(owner.path, pack_frame(Frame(Kind.PEER_HELLO, 0, b"?"), version=9))
        frame = FrameReader(TO_TAKER).feed_one(data)
        assert frame is not None
        assert decode(frame).reason is PeerRefusal.PROTOCOL


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_bytes_harm_an_owner(tmp_path, data) -> None:
    hello = encode(Kind.PEER_HELLO, Taker(tmp_path).client._hello)
    at = data.draw(st.integers(0, len(hello)))
    said = (
        hello[:at] + data.draw(st.binary(max_size=30)) + hello[at + data.draw(st.integers(0, 9)) :]
    )

    async def run() -> None:
        tmp_path.chmod(0o700)
        async with Owner(tmp_path) as owner:
            before = open_descriptors()
            await tell(owner.path, said)
            await until(lambda: open_descriptors() <= before)
            taker = Taker(owner.path)
            owner.leases.granted[LEASE] = (taker.incarnation, 1)
            assert await taker.client.take(LEASE, 1) == LeaseHeld(LEASE)
            taker.client.close()

    asyncio.run(run())


async def test_silent_callers_are_sent_away(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(peer_port, "HELLO_TIMEOUT_S", 0.05)
    async with Owner(folder) as owner:
        before = open_descriptors()
        callers = [await asyncio.open_unix_connection(owner.path) for _ in range(5)]
        for reader, writer in callers:
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
            await writer.wait_closed()
        await until(lambda: open_descriptors() <= before)


# What a false owner says to a taker.


@asynccontextmanager
async def false_owner(path: Path, answer: Callable[[socket.socket], None]):
    """Listens, reads a hello, answers, and closes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            answer(connection)

    serving = asyncio.create_task(asyncio.to_thread(serve))
    try:
        yield
        await serving
    finally:
        listener.close()


WELCOME = encode(Kind.PEER_WELCOME, PeerWelcome(KV))


@pytest.mark.parametrize(
    ("data", "descriptors", "problem"),
    [
        (WELCOME, 0, "sent 0 descriptors"),
        (WELCOME, 2, "sent 2 descriptors"),
        (WELCOME, 9, "more descriptors"),
        (WELCOME + b"\0", 1, "more came than one message"),
        (WELCOME[:-1], 1, "went away before"),
        (b"", 0, "went away before"),
        (b"\xff" * 40, 1, "version 255"),
        (encode(Kind.LEASE_HELD, LeaseHeld(LEASE)), 1, "did not answer the hello"),
        (encode(Kind.TAKE, LEASE), 1, "may not come here"),
        (encode(Kind.PEER_WELCOME, PeerWelcome(replace(KV, page_bytes=1))), 1, "pages of owner"),
        (encode(Kind.PEER_REFUSED, PeerRefused(PeerRefusal.FULL, "no room")), 1, "no room"),
    ],
)
async def test_a_false_welcome_is_an_error_and_leaks_no_descriptor(
    folder: Path, data: bytes, descriptors: int, problem: str
) -> None:
    def answer(connection: socket.socket) -> None:
        if data:
            with Path(os.devnull).open() as null:
                socket.send_fds(connection, [data], [null.fileno()] * descriptors)

    path = folder / "false.sock"
    before = open_descriptors()
    async with false_owner(path, answer):
        taker = Taker(path)
        with pytest.raises(PeerError, match=problem):
            await taker.client.take(LEASE, 1)
        assert taker.memories == []
    await until(lambda: open_descriptors() <= before)


async def test_a_welcome_in_crumbs_is_a_welcome(folder: Path) -> None:
    def answer(connection: socket.socket) -> None:
        memory = os.memfd_create("test")
        os.write(memory, b"crumbs")
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))
        connection.sendmsg([WELCOME[:1]], [rights])
        os.close(memory)
        for byte in WELCOME[1:]:
            connection.send(bytes([byte]))
        connection.recv(65536)

    path = folder / "false.sock"
    async with false_owner(path, answer):
        taker = Taker(path)
        with pytest.raises(PeerError):
            await taker.client.take(LEASE, 1)
        assert taker.memories == [b"crumbs"]


async def test_a_memory_that_can_not_be_used_fails_the_calls_alone(folder: Path) -> None:
    def refuse(descriptor: int, kv: KvShape) -> None:
        os.close(descriptor)
        raise PeerError("the memory is too short")

    async with Owner(folder) as owner:
        taker = Taker(owner.path)
        taker.client._on_memory = refuse
        before = open_descriptors()
        for _ in range(3):
            with pytest.raises(PeerError, match="too short"):
                await taker.client.take(LEASE, 1)
        await until(lambda: owner.port.peers == 0 and open_descriptors() <= before)


async def test_a_slow_owner_costs_each_call_its_deadline_and_no_more(folder: Path) -> None:
    """Calls that come while the welcome is awaited wait for the same welcome, not one by one."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "deaf.sock"))
    listener.listen()
    listener.setblocking(False)
    taker = Taker(folder / "deaf.sock", timeout_s=0.2)
    answers = await asyncio.gather(
        *(taker.client.take(LEASE, 1) for _ in range(50)), return_exceptions=True
    )
    assert all(isinstance(answer, PeerError) for answer in answers)
    listener.accept()[0].close()
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()
