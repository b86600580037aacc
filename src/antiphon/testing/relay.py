"""Connections that are passed on, both ways, until one side is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Ends: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PassOn: TypeAlias = Callable[[bool, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Passes on what comes one way (True: to the far side); when it returns the connection ends."""


class Relay:
    """Connects each connection that comes to what `dial` opens, and breaks all when it is closed.

    `begin` is called for each and says how that one's two ways are passed on. One for which `dial`
    raises `OSError` is closed.
    """

    def __init__(self, dial: Callable[[], Awaitable[Ends]], begin: Callable[[], PassOn]) -> None:
        self._dial = dial
        self._begin = begin
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, listen: Callable[..., Awaitable[asyncio.Server]]) -> asyncio.Server:
        """Let connections in: `listen` is given who takes them."""
        self._server = await listen(self._connected)
        return self._server

    async def close(self) -> None:
        """Break all connections, and let none in."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass_on = self._begin()
        try:
            far_reader, far_writer = await self._dial()
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.ensure_future(pass_on(True, reader, far_writer)),
            asyncio.ensure_future(pass_on(False, far_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when="FIRST_COMPLETED")
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, far_writer):
                end.close()
