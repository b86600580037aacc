"""A relay of bytes between two hosts, which knows nothing of what they say: it cuts and garbles."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from network_kit import LOOPBACK

from antiphon.testing.relay import PassOn, Relay


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
        self._mishaps = mishaps
        self._relay = Relay(lambda: asyncio.open_connection(LOOPBACK, port), self._begin)

    async def __aenter__(self) -> "ByteRelay":
        server = await self._relay.start(partial(asyncio.start_server, host=LOOPBACK, port=0))
        self.port = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._relay.close()

    def _begin(self) -> PassOn:
        return partial(self._pass, next(self._mishaps, None))

    async def _pass(
        self,
        mishap: Mishap | None,
        to_gateway: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
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
