"""How another store of the pool is called: over TLS with this host's keys, or, without keys, on
this host's own loopback."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from antiphon.core.store_pool.peer_address import PeerAddress
from antiphon.live.network import HostKeys, TlsAddress, dial, tls_name
from antiphon.types import HostName, Seconds
from antiphon.wire import FrameStream

Dial: TypeAlias = Callable[[FrameStream, PeerAddress, Seconds], Awaitable[None]]
"""Connect the stream to that store. Raises `OSError`, `TimeoutError`, or `UsageError`: who answers
is another one."""


def dial_by(keys: HostKeys | None) -> Dial:
    """With these keys: the certificate must be of the host that the store is called after. Raises
    `UsageError`."""
    if keys is None:
        return _plain
    context = keys.client()

    async def over_tls(stream: FrameStream, peer: PeerAddress, timeout_s: Seconds) -> None:
        path = ((peer.host, peer.port),)
        await dial(stream, TlsAddress(path, tls_name(HostName(peer.name)), context), timeout_s)

    return over_tls


async def _plain(stream: FrameStream, peer: PeerAddress, timeout_s: Seconds) -> None:
    async with asyncio.timeout(timeout_s):
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: stream, peer.host, peer.port)
