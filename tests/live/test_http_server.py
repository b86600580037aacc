"""What a peer can make the HTTP server hold before any key is looked at, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from fastapi import FastAPI

from antiphon.live import http_server
from antiphon.live.http_server import MAX_HEAD_BYTES, HttpServer
from antiphon.live.listener import listen
from antiphon.types import HttpConfig

MAX_CONNECTIONS = 3


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[int]:
    """A server that echoes the length of a body; yields its port."""
    app = FastAPI(openapi_url=None)

    @app.post("/length")
    async def length(body: dict) -> int:  # pyright: ignore
        return len(body["text"])

    started = asyncio.Event()
    with listen(HttpConfig(port=0)) as listener:
        server = HttpServer(app, max_connections=MAX_CONNECTIONS, on_started=started.set)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await started.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the peer's close."""
    async with asyncio.timeout(30):
        return await reader.read()


async def test_an_idle_connection_outlives_the_patience_of_clients():
    """A client sent into a connection that the server closed after 5 s: one request in 3,575."""
    async with running() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"text": "abc"}'
        call = b"POST /length HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(call + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert await reader.readexactly(1) == b"3"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 6)
        assert http_server.IDLE_S > 90
        writer.close()


async def test_a_head_without_end_is_refused_while_it_comes():
    async with running() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 100 * MAX_HEAD_BYTES and not reader.at_eof():
                line = b"x-%d: %s\r\n" % (sent, b"y" * 4000)
                writer.write(line)
                await writer.drain()
                sent += len(line)
        assert sent < 100 * MAX_HEAD_BYTES
        with contextlib.suppress(ConnectionError):
            assert b"431 Request Header Fields Too Large" in await answer(reader)
        writer.close()


async def test_a_body_larger_than_a_head_may_be_is_none():
    async with running() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"text": "%s"}' % (b"z" * (5 * MAX_HEAD_BYTES))
        head = (
            b"POST /length HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        writer.write(head + body)
        got = await answer(reader)
        assert got.startswith(b"HTTP/1.1 200"), got
        assert got.endswith(b"%d" % (5 * MAX_HEAD_BYTES))
        writer.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nhost:", b"GET / HTTP/1.1\r\nhost: x\r\n"]
)
async def test_a_head_that_never_ends_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes):
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.05)
    async with running() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert b"408 Request Timeout" in await answer(reader)
        writer.close()


async def test_the_second_head_on_a_connection_has_limits_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.05)
    async with running() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\nGET /b HTTP/1.1\r\nhost:")
        got = await answer(reader)
        assert b"404 Not Found" in got
        assert b"408 Request Timeout" in got
        writer.close()


async def test_one_connection_too_many_is_refused_and_the_others_go_on():
    async with running() as port:
        open_ones = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"503 Service Unavailable" in await answer(reader)
        writer.close()
        for reader, writer in open_ones:
            writer.write(b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert b"404 Not Found" in await answer(reader)
            writer.close()


def test_a_port_is_taken_from_the_moment_that_a_server_starts():
    with listen(HttpConfig(port=0)) as first, socket.socket() as second:
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError):
            second.bind(first.getsockname())
