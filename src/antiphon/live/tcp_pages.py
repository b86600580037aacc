"""Pages of an owner on another host, read over TCP: implements `OwnersPages`.

The owner's welcome brings what opens its data socket, each time that the control stream is opened:
the key before it opens nothing any more. Pulls block `threads`; to close waits for pulls, and is
for `closing`.
"""

import asyncio
import logging
import os
import threading
from concurrent.futures import Executor
from dataclasses import dataclass

from antiphon.errors import PeerError
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.mapping import pull_table
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import (
    DataAccess,
    KvShape,
    PathUse,
    Pull,
    RequestId,
    Seconds,
    Transport,
    WorkerId,
)

from .part_loader import PartLoader
from .path_uses import path_uses
from .pull_path import Copied, why_missed

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    """A pull: which one of which client, once it has begun."""

    client: PageClient | None = None
    number: int = 0
    wanted: bool = True


class TcpPages:
    """One life of an owner. A pull ends after `timeout_s`, with what has come by then.

    With a `loader`, pages come in its parts, and it takes each to the device when it is here.
    """

    transport = Transport.TCP

    def __init__(
        self,
        owner: WorkerId,
        own: OwnedRegion,
        threads: Executor,
        *,
        closing: Executor,
        timeout_s: Seconds,
        loader: PartLoader | None = None,
    ) -> None:
        self._owner = owner
        self._own = own
        self._threads = threads
        self._closing = closing
        self._timeout_s = timeout_s
        self._loader = loader
        self._lock = threading.Lock()
        self._access: DataAccess | None = None
        self._client: PageClient | None = None
        self._pulls: dict[tuple[RequestId, int], _Running] = {}
        self._closed = False

    def paths(self) -> tuple[PathUse, ...]:
        """Those of the present key; none before the first pull with it."""
        with self._lock:
            client = self._client
        return () if client is None else path_uses(client)

    def memory_came(self, descriptor: int, shape: KvShape) -> None:
        """No memory of another host can be mapped."""
        os.close(descriptor)

    def access_came(self, access: DataAccess) -> None:
        """Pulls that begin from now on use it; those under way end with what they have."""
        with self._lock:
            before, self._client = self._client, None
            self._access = access
        self._retire(before)
        _log.info("KV of %s comes over TCP from %s", self._owner, ", ".join(access.endpoints))

    async def copy(self, pull: Pull) -> Copied:
        """Raises `PeerError` if nothing opens the owner's data socket."""
        attempt = (pull.request, pull.attempt)
        with self._lock:
            self._pulls[attempt] = _Running()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._copy, pull)
        finally:
            with self._lock:
                del self._pulls[attempt]

    def stop(self, request: RequestId, attempt: int) -> None:
        """What has not come by now is a miss."""
        with self._lock:
            running = self._pulls.get((request, attempt))
            if running is None:
                return
            running.wanted = False
            client, number = running.client, running.number
        if client is not None:
            client.stop(number)

    def close(self) -> None:
        """End what is under way."""
        with self._lock:
            self._closed = True
            before, self._client = self._client, None
        self._retire(before)

    def _retire(self, client: PageClient | None) -> None:
        if client is not None:
            self._closing.submit(client.close)

    # On a thread.

    def _copy(self, pull: Pull) -> Copied:
        client = self._opened()
        table, load = pull_table(pull.pages), None
        if self._loader is None:
            number = client.begin(table, self._timeout_s)
        else:
            parts, load = self._loader.parts, self._loader.begin(pull.targets)
            number = client.begin(table, self._timeout_s, parts=parts, on_part=load.here)
        with self._lock:
            running = self._pulls[pull.request, pull.attempt]
            running.client, running.number = client, number
            wanted = running.wanted
        if not wanted:
            client.stop(number)
        read = client.wait(number)
        if load is not None:
            load.finish()
        good = tuple(read.good.tolist())
        if all(good):
            return Copied(good)
        return Copied(good, "; ".join(filter(None, (why_missed(read.missed), client.problem))))

    def _opened(self) -> PageClient:
        """To make one may compile its kernels: the lock is for the event loop too."""
        with self._lock:
            client, access = self._client, self._access
            if self._closed or access is None:
                raise PeerError(f"nothing opens the data socket of owner {self._owner}")
        if client is not None:
            return client
        client = PageClient(access, self._own)
        with self._lock:
            if self._client is None and self._access is access and not self._closed:
                self._client = client
                return client
        client.close()
        return self._opened()
