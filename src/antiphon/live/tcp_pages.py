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

from antiphon.errors import PeerError
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import DataAccess, KvShape, Pull, Seconds, WorkerId

from .pull_path import Copied, why_missed

_log = logging.getLogger(__name__)


class TcpPages:
    """One life of an owner. A pull ends after `timeout_s`, with what has come by then."""

    def __init__(
        self,
        owner: WorkerId,
        own: OwnedRegion,
        threads: Executor,
        *,
        closing: Executor,
        timeout_s: Seconds,
    ) -> None:
        self._owner = owner
        self._own = own
        self._threads = threads
        self._closing = closing
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._access: DataAccess | None = None
        self._client: PageClient | None = None
        self._closed = False

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
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._copy, pull)

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
        before = client.missed.copy()
        good = client.pull(pull.pages, self._timeout_s)
        if all(good):
            return Copied(good)
        missed = why_missed(client.missed - before)
        return Copied(good, "; ".join(filter(None, (missed, client.problem))))

    def _opened(self) -> PageClient:
        with self._lock:
            if self._closed or self._access is None:
                raise PeerError(f"nothing opens the data socket of owner {self._owner}")
            if self._client is None:
                self._client = PageClient(self._access, self._own)
            return self._client
