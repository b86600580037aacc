"""The proxy passes bytes on, cuts what is under way, and makes it late."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.drill.http_proxy import HttpProxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def proxied() -> AsyncIterator[HttpProxy]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with HttpProxy(f"http://127.0.0.1:{port}") as proxy:
        yield proxy
    server.close()


async def connect(proxy: HttpProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))


async def test_bytes_pass_whole_and_in_order_and_so_does_the_end() -> None:
    async with proxied() as proxy:
        reader, writer = await connect(proxy)
        sent = bytes(range(256)) * 4096
        writer.write(sent)
        writer.write_eof()
        assert await reader.read(-1) == sent
        writer.close()


async def test_a_cut_resets_every_connection_and_later_ones_are_whole() -> None:
    async with proxied() as proxy:
        pairs = [await connect(proxy) for _ in range(3)]
        for reader, writer in pairs:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        assert proxy.busy
        assert proxy.cut() == 3
        for reader, writer in pairs:
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()
        reader, writer = await connect(proxy)
        writer.write(b"y")
        assert await reader.readexactly(1) == b"y"
        writer.close()


async def test_a_connection_on_which_nobody_speaks_is_not_busy() -> None:
    async with proxied() as proxy:
        assert not proxy.busy
        assert proxy.cut() == 0
        _, writer = await connect(proxy)
        await asyncio.sleep(0)
        assert not proxy.busy
        writer.close()


async def test_what_is_sent_meanwhile_is_late_both_ways_and_stays_in_order() -> None:
    async with proxied() as proxy:
        reader, writer = await connect(proxy)
        proxy.lag_s = 0.1
        began = time.monotonic()
        for piece in (b"a", b"b", b"c"):
            writer.write(piece)
            await writer.drain()
        assert await reader.readexactly(3) == b"abc"
        assert time.monotonic() - began >= 0.2
        writer.close()


async def test_nobody_listens_behind_it() -> None:
    async with HttpProxy("http://127.0.0.1:9") as proxy:
        reader, writer = await connect(proxy)
        assert await reader.read(-1) == b""
        writer.close()
