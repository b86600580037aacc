"""A connection to a process of this host, or of another one."""

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from antiphon.core.host_names import format_host_port
from antiphon.errors import UsageError
from antiphon.live.failure import why
from antiphon.types import Seconds
from antiphon.wire import FrameStream

REST_S: Seconds = 30.0
"""How long an address at which nobody answered is tried after the others."""
SILENCE_S: Seconds = 5.0
"""Bytes that nobody has acknowledged for so long end a connection: it is opened anew, which is
faster than to wait until TCP tries again."""


@dataclass(frozen=True, slots=True, eq=False)
class TlsAddress:
    """Where a process of another host listens, a path each, and the name in its certificate."""

    paths: tuple[tuple[str, int], ...]
    name: str
    context: ssl.SSLContext
    resting: dict[str, Seconds] = field(default_factory=dict)
    """Addresses that failed, and until when (on the loop's clock) others are tried before them."""

    def __str__(self) -> str:
        return " or ".join(format_host_port(*path) for path in self.paths)


Address: TypeAlias = Path | TlsAddress


async def dial(stream: FrameStream, address: Address, timeout_s: Seconds) -> None:
    """Connect `stream`, by the first path that works: one where somebody else answers rests, like
    one where nobody does.

    Raises `OSError` if none works in time, and `UsageError` if at each it is not who we want that
    answers: retrying would not help. Either has what went wrong last as its cause."""
    if isinstance(address, Path):
        async with asyncio.timeout(timeout_s):
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: stream, os.fspath(address))
        return
    each_s = timeout_s / len(address.paths)
    failed: list[str] = []
    foreign: list[str] = []
    last: OSError | None = None
    now = asyncio.get_running_loop().time()
    for path in sorted(address.paths, key=lambda path: address.resting.get(path[0], 0.0) > now):
        try:
            await _by(stream, path, address, each_s)
            return
        except ssl.SSLCertVerificationError as error:
            last = error
            address.resting[path[0]] = now + REST_S
            foreign.append(
                f"who answers at {format_host_port(*path)} is not {address.name} of this cluster: "
                f"{error.verify_message}"
            )
        except OSError as error:
            last = error
            address.resting[path[0]] = now + REST_S
            failed.append(f"{format_host_port(*path)}: {why(error)}")
    if not failed:
        raise UsageError("; ".join(foreign)) from last
    raise ConnectionError("; ".join((*foreign, *failed))) from last


async def _by(
    stream: FrameStream, path: tuple[str, int], address: TlsAddress, timeout_s: Seconds
) -> None:
    """Raises `OSError` (`TimeoutError` is one)."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        transport, _ = await loop.create_connection(
            lambda: stream,
            *path,
            ssl=address.context,
            server_hostname=address.name,
            ssl_handshake_timeout=timeout_s,
        )
    expect_signs_of_life(transport.get_extra_info("socket"))


def expect_signs_of_life(connection: socket.socket | None) -> None:
    """A connection whose other side has vanished ends after `SILENCE_S`, used or not."""
    if connection is None:
        return
    silence_ms = int(SILENCE_S * 1000)
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ):
        connection.setsockopt(level, option, value)
