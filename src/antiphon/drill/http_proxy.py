"""A proxy of the drill's own between its clients and the gateway, which can cut and delay.

client ──► HttpProxy ──► gateway         cut: both sockets of each connection are reset
       ◄──           ◄──                 delay: every byte arrives so much later, in order
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from antiphon.types import Seconds

_READ_BYTES = 64 * 2**10
_MOST_WAITING = 256
"""Pieces of one direction of a connection that may be on their way."""
_MOMENT_S: Seconds = 0.05
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset, and drops what was not sent."""


class HttpProxy:
    """Passes bytes on to the server at `url`, whatever they are. Use as `async with`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        """Where clients reach it; from `__aenter__` on."""
        self.lag_s: Seconds = 0.0
        """What comes from now on is late by that much, either way."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Reset every connection; how many there were."""
        connections = list(self._connections)
        for connection in connections:
            connection.reset()
        return len(connections)

    @property
    def busy(self) -> bool:
        """On some connection an answer seems to be under way: its client spoke last, or its server
        a moment ago."""
        now = asyncio.get_running_loop().time()
        return any(connection.is_busy(now) for connection in self._connections)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        connection = _Connection(writer, far_writer)
        self._connections.add(connection)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(reader, far_writer, connection.client_spoke))
                ways.create_task(self._pass_on(far_reader, writer, connection.server_spoke))
        except* (ConnectionError, OSError):
            pass  # one side is gone: so is the other, now
        finally:
            self._connections.discard(connection)
            for end in (writer, far_writer):
                end.close()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        spoke: Callable[[Seconds], None],
    ) -> None:
        """One direction, until its end, which is passed on too."""
        clock = asyncio.get_running_loop().time
        late: asyncio.Queue[tuple[Seconds, bytes]] = asyncio.Queue(_MOST_WAITING)

        async def write() -> None:
            while True:
                due, data = await late.get()
                if (wait_s := due - clock()) > 0:
                    await asyncio.sleep(wait_s)
                if not data:
                    with suppress(OSError):
                        writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        writing = asyncio.create_task(write())
        try:
            while not writing.done():
                data = await reader.read(_READ_BYTES)
                spoke(clock())
                await late.put((clock() + self.lag_s, data))
                if not data:
                    break
            await writing
        finally:
            writing.cancel()


class _Connection:
    """Both sockets of one."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._ends = (near, far)
        self._client_spoke_at: Seconds = 0.0
        self._server_spoke_at: Seconds = 0.0

    def client_spoke(self, now: Seconds) -> None:
        self._client_spoke_at = now

    def server_spoke(self, now: Seconds) -> None:
        self._server_spoke_at = now

    def is_busy(self, now: Seconds) -> bool:
        if self._client_spoke_at > self._server_spoke_at:
            return True
        return 0.0 < self._server_spoke_at >= now - _MOMENT_S

    def reset(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                raw: socket.socket = end.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()
