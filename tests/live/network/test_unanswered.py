"""Who calls an address at which nobody can be joined is told what is wrong and what to do, in words
and without the address, which it has said itself."""

import asyncio
import errno
import shutil
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from network_kit import LOOPBACK, address_of, keys_of, make_keys, open_door

from antiphon.live.network import probe as probing
from antiphon.live.network import tls_name
from antiphon.live.network.probe import Found, probe
from antiphon.live.network.unanswered import unanswered

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """Some other program on a port."""

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(come, LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def in_words(found: Found, port: int) -> bool:
    told = f"{found.problem} {found.remedy}"
    return bool(found.problem and found.remedy) and str(port) not in told and "Errno" not in told


async def test_a_port_at_which_nobody_listens(tmp_path: Path) -> None:
    make_keys(tmp_path, "box1")
    async with listening(_hangs_up) as port:
        pass
    found = await probe(address_of(port, keys_of(tmp_path, "box1")))
    assert (found.problem, in_words(found, port)) == ("nothing listens there", True)


async def _speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example.com ESMTP\r\n" * 4)
    await writer.drain()
    await reader.read(1)


async def _hangs_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def _says_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(4096):
        pass


@pytest.mark.parametrize(
    ("serve", "problem"),
    [
        (_speaks, "what answers there speaks no TLS"),
        (_hangs_up, "it hangs up while it is greeted"),
        (_says_nothing, "no answer in time"),
    ],
)
async def test_a_port_that_another_program_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve, problem: str
) -> None:
    if serve is _says_nothing:
        monkeypatch.setattr(probing, "DIAL_TIMEOUT_S", 0.2)
    make_keys(tmp_path, "box1")
    async with listening(serve) as port:
        found = await probe(address_of(port, keys_of(tmp_path, "box1")))
    assert (found.problem, in_words(found, port)) == (problem, True)


async def test_a_host_of_another_name_and_one_of_another_cluster(tmp_path: Path) -> None:
    make_keys(tmp_path / "own", "box1", "box2")
    make_keys(tmp_path / "others", "box1")
    own = keys_of(tmp_path / "own", "box2")
    async with open_door(keys_of(tmp_path / "own", "box1")) as (_, _, port):
        found = await probe(address_of(port, own, tls_name("box3")))
        assert "not box3" in found.problem
        assert in_words(found, port)
    async with open_door(keys_of(tmp_path / "others", "box1")) as (_, _, port):
        found = await probe(address_of(port, own))
        assert "of this cluster" in found.problem
        assert in_words(found, port)


@contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[int]:
    """Another program that speaks TLS to one who comes, and says nothing."""

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            connection.settimeout(20.0)
            with connection, context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)

    with socket.create_server((LOOPBACK, 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def an_older_one(context: ssl.SSLContext) -> None:
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2


def one_of_other_names(context: ssl.SSLContext) -> None:
    context.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


@pytest.mark.parametrize("of", [an_older_one, one_of_other_names])
async def test_a_server_that_speaks_tls_is_not_told_to_refuse_keys(
    tmp_path: Path, of: Callable[[ssl.SSLContext], None]
) -> None:
    make_keys(tmp_path, "box1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "box1/host.pem", tmp_path / "box1/host.key")
    of(context)
    with tls_server(context) as port:
        found = await probe(address_of(port, keys_of(tmp_path, "box1")))
    assert found.problem.startswith("what answers there is not Antiphon")
    assert in_words(found, port)
    assert "keys" not in f"{found.problem} {found.remedy}"


async def test_keys_that_are_refused(tmp_path: Path) -> None:
    """In TLS 1.3 that comes after a handshake that went well here: from a server that says why,
    and from a door, which hangs up."""
    make_keys(tmp_path / "own", "box1", "box2")
    make_keys(tmp_path / "others", "box1")
    mixed = tmp_path / "mixed"
    shutil.copytree(tmp_path / "own" / "box1", mixed)
    shutil.copy(tmp_path / "others" / "box1" / "authority.pem", mixed)
    keys, there = keys_of(tmp_path / "own", "box2"), keys_of(tmp_path / "own", "box1")
    refusing = replace(there, folder=mixed)
    with tls_server(refusing.server()) as port:
        found = await probe(address_of(port, keys))
    async with open_door(refusing) as (_, _, door_port):
        at_door = await probe(address_of(door_port, keys))
    assert "does not take these keys" in found.problem
    assert "authority" in found.remedy
    assert in_words(found, port)
    assert at_door == found


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), "there is no way to it from here"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "there is no way to it from here"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "its name is not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "speaks no TLS"),
        (ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)"), "it hangs up"),
        (ConnectionResetError(), "it hangs up"),
    ],
)
def test_what_the_system_says_is_put_into_words(error: OSError, problem: str) -> None:
    found = unanswered(error, "box2")
    assert problem in found.problem
    assert found.remedy
    assert "Errno" not in found.problem


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert unanswered(OSError(errno.EMFILE, "Too many open files"), "b").problem.endswith("files")
