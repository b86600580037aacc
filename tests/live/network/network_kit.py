"""Keys of a small cluster, and doors that ask for them, on loopback."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from link_kit import Door, worker_info

from antiphon.live.network import (
    GATEWAY_NAME,
    HostKeys,
    TlsAddress,
    TlsDoor,
    bound,
    read_host_keys,
)
from antiphon.live.network.authority import add_host, open_authority
from antiphon.types import HostPort, WorkerId, WorkerInfo
from antiphon.wire import FROM_STRANGERS, Ending, Frame, FrameStream

LOOPBACK = "127.0.0.1"


def make_keys(folder: Path, *hosts: str, gateway: str = "box1", days: int = 365) -> None:
    """An authority, if there is none, and keys for hosts."""
    authority, _ = open_authority(folder)
    for host in hosts:
        add_host(folder, authority, host, gateway=host == gateway, days=days)


def keys_of(folder: Path, host: str) -> HostKeys:
    return read_host_keys(folder / host)


def address_of(port: int, keys: HostKeys, name: str = GATEWAY_NAME) -> TlsAddress:
    return TlsAddress(((LOOPBACK, port),), name, keys.client())


def host_worker(name: str = "box2.w0", host: str = "box2", life: str = "life-1") -> WorkerInfo:
    """A worker that says that it is on that host."""
    at = HostPort(host=host, addresses=(LOOPBACK,), port=7)
    return replace(worker_info(life=life), id=WorkerId(name), at=at)


@dataclass
class Strangers:
    """Streams that a door has made, what came on them, and how they ended."""

    streams: list[FrameStream] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    def make(self) -> FrameStream:
        stream = FrameStream(FROM_STRANGERS, clock=time.monotonic)
        stream.on_frame = self.frames.append
        stream.on_end = self.endings.append
        self.streams.append(stream)
        return stream


@asynccontextmanager
async def open_door(keys: HostKeys) -> AsyncIterator[tuple[TlsDoor, Strangers, int]]:
    """A door that takes in whoever has keys of the cluster, and its port."""
    strangers = Strangers()
    listeners = bound([LOOPBACK], 0, "test")
    door = TlsDoor(listeners, keys.server(), strangers.make, clock=time.monotonic)
    door.start()
    try:
        yield door, strangers, listeners[0].getsockname()[1]
    finally:
        await door.close()


@asynccontextmanager
async def gateway_on_tls(
    folder: Path, keys: HostKeys, **settings
) -> AsyncIterator[tuple[Door, int]]:
    """A gateway that is joined from other hosts, and its port."""
    door = Door(folder, **settings)
    listeners = bound([LOOPBACK], 0, "test")
    door.socket.open_to_hosts(listeners, keys.server())
    async with door:
        yield door, listeners[0].getsockname()[1]


async def closed_by_other_side(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes."""
    async with asyncio.timeout(20):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
