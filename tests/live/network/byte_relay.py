"""A relay of bytes between two hosts, which knows nothing of what they say: it cuts and garbles."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from network_kit import LOOPBACK


@dataclass(frozen=True)
class Mishap:
    """After so many bytes of one way of a connection: the end, or one bit that is another."""

    after_bytes: int
    to_gateway: bool
    garbles: bool


class ByteRelay:
    """Passes connections on to `port`. Connection n meets mishap n, if there is one."""

    def __init__(self, port: int, mishaps: Iterator[Mishap]) -> None:
        self.port = 0
        self.done: list[Mishap] = []
        self._target = port
        self._mishaps = mishaps
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "ByteRelay":
        self._server = await asyncio.start_server(self._connected, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mishap = next(self._mishaps, None)
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._target)
        ways = [
            asyncio.create_task(self._pass(reader, far_writer, True, mishap)),
            asyncio.create_task(self._pass(far_reader, writer, False, mishap)),
        ]
        try:
            await asyncio.wait(ways, return_when="FIRST_COMPLETED")
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, far_writer):
                end.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_gateway: bool,
        mishap: Mishap | None,
    ) -> None:
        mine = mishap if mishap is not None and mishap.to_gateway is to_gateway else None
        passed = 0
        with suppress(ConnectionError):
            while data := bytearray(await reader.read(4096)):
                if mine is not None and passed + len(data) > mine.after_bytes:
                    self.done.append(mine)
                    at = mine.after_bytes - passed
                    if not mine.garbles:
                        writer.write(data[:at])
                        return
                    data[at] ^= 1
                    mine = None
                passed += len(data)
                writer.write(data)
                await writer.drain()
