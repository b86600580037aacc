"""Who calls an address at which nobody can be joined is told what is wrong and what to do, in words
and without the address, which it has said itself."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
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


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), "there is no way to it from here"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "there is no way to it from here"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "its name is not known"),
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA]"), "speaks no TLS"),
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
