"""How another store of the pool is called: over TLS with this host's keys, or, without keys, over a
socket that nobody but this user can reach."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from antiphon.core.host_names import is_loopback
from antiphon.core.store_pool.peer_address import PeerAddress
from antiphon.errors import UsageError
from antiphon.live.local_servers import runtime_folder
from antiphon.live.network import HostKeys, TlsAddress, dial, tls_name
from antiphon.live.socket_folder import private_folder
from antiphon.types import HostName, Seconds
from antiphon.wire import FrameStream

Dial: TypeAlias = Callable[[FrameStream, PeerAddress, Seconds], Awaitable[None]]
"""Connect the stream to that store. Raises `OSError`, `TimeoutError`, or `UsageError`: who answers
is another one."""


def dial_by(keys: HostKeys | None) -> Dial:
    """With these keys: the certificate must be of the host that the store is called after. Raises
    `UsageError`."""
    if keys is None:
        return _on_this_host
    context = keys.client()
    resting: dict[str, Seconds] = {}

    async def over_tls(stream: FrameStream, peer: PeerAddress, timeout_s: Seconds) -> None:
        name = tls_name(HostName(peer.name))
        await dial(stream, TlsAddress(peer.paths, name, context, resting), timeout_s)

    return over_tls


def pool_socket(port: int) -> Path:
    """Where a store without keys is reached whose address has this port: a Unix socket in a folder
    of this user, since any user of the host can connect to a port. Raises `UsageError`."""
    return private_folder(runtime_folder() / "pool") / f"{port}.sock"


async def _on_this_host(stream: FrameStream, peer: PeerAddress, timeout_s: Seconds) -> None:
    if not all(is_loopback(host) for host, _ in peer.paths):
        raise UsageError(f"{peer} is on another host, and this store has no keys (network.keys)")
    async with asyncio.timeout(timeout_s):
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: stream, os.fspath(pool_socket(peer.port)))
