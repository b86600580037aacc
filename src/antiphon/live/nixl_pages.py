"""Pages of an owner on another host by NIXL, if the owner offers that: implements `OwnersPages`.

    access with memory ──► NixlPath ── it breaks ──┐
    access without ────────────────────────────────┴──► TcpPages

Which of the two it is, is settled anew each time that the control stream is opened. A pull that
breaks the path is lost, and computed; those after it go over TCP.
"""

import asyncio
import logging
import threading
from collections import Counter
from concurrent.futures import Executor

from antiphon.adapters.nixl_memory import NixlMemory
from antiphon.adapters.nixl_path import NixlPath
from antiphon.errors import PeerError
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

from .pull_path import Copied, why_missed
from .tcp_pages import TcpPages

_log = logging.getLogger(__name__)


class NixlPages:
    """One life of an owner. `tcp` is its own from now on, and used where NIXL is not."""

    def __init__(
        self,
        owner: WorkerId,
        memory: NixlMemory,
        tcp: TcpPages,
        threads: Executor,
        *,
        closing: Executor,
        timeout_s: Seconds,
    ) -> None:
        self._owner = owner
        self._memory = memory
        self._tcp = tcp
        self._threads = threads
        self._closing = closing
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        """Held for as long as it takes to make a path, by threads alone; before the other."""
        self._access: DataAccess | None = None
        """What NIXL reads by; None: pages come over TCP."""
        self._path: NixlPath | None = None

    @property
    def transport(self) -> Transport:
        """What brings the pages now."""
        return Transport.TCP if self._access is None else Transport.NIXL

    def paths(self) -> tuple[PathUse, ...]:
        """Those over TCP, if it is that: what NIXL takes is its own affair."""
        return self._tcp.paths() if self._access is None else ()

    def memory_came(self, descriptor: int, shape: KvShape) -> None:
        """No memory of another host can be mapped."""
        self._tcp.memory_came(descriptor, shape)

    def access_came(self, access: DataAccess) -> None:
        """Pulls that begin from now on use it."""
        with self._lock:
            if access.memory is not None and self._current(access):
                self._access = access
            elif access.memory is not None:
                self._turn_to(access)
                _log.info("KV of %s comes by NIXL", self._owner)
            else:
                self._turn_to(None)
                self._tcp.access_came(access)
                _log.warning("%s offers no KV by NIXL: see its network.kv_transport", self._owner)

    async def copy(self, pull: Pull) -> Copied:
        """Raises `PeerError` if nothing opens the owner's pages, or NIXL failed."""
        if (access := self._access) is not None:
            loop = asyncio.get_running_loop()
            copied = await loop.run_in_executor(self._threads, self._copy, pull, access)
            if copied is not None:
                return copied
        return await self._tcp.copy(pull)

    def stop(self, request: RequestId, attempt: int) -> None:
        """A read of NIXL's can't be called off."""
        self._tcp.stop(request, attempt)

    def close(self) -> None:
        """Give the path back when what is under way is done."""
        with self._lock:
            self._turn_to(None)
        self._tcp.close()

    # On a thread.

    def _copy(self, pull: Pull, access: DataAccess) -> Copied | None:
        """None: there is no way by NIXL. Raises `PeerError`: it broke."""
        try:
            path = self._opened(access)
        except PeerError as error:
            self._to_tcp(access, error)
            return None
        try:
            misses = path.pull(pull.pages, self._timeout_s)
        except PeerError as error:
            self._to_tcp(access, error)
            raise
        missed = Counter(miss for miss in misses if miss is not None)
        return Copied(tuple([miss is None for miss in misses]), why_missed(missed))

    def _opened(self, access: DataAccess) -> NixlPath:
        assert access.memory is not None
        with self._opening:
            with self._lock:
                path = self._path if self._current(access) else None
            if path is not None:
                return path
            path = self._memory.path_to(access.memory)
            with self._lock:
                if self._current(access):
                    self._path = path
                    return path
        self._memory.leave(path)
        raise PeerError(f"what opened the memory of owner {self._owner} is over")

    def _to_tcp(self, access: DataAccess, error: PeerError) -> None:
        with self._lock:
            if not self._current(access):
                return
            _log.warning("KV of %s comes over TCP from now on: %s", self._owner, error)
            assert self._access is not None
            newest = self._access
            self._turn_to(None)
            self._tcp.access_came(newest)

    # Under the lock.

    def _current(self, access: DataAccess) -> bool:
        """Whether it names the memory that is read now."""
        return self._access is not None and self._access.memory == access.memory

    def _turn_to(self, access: DataAccess | None) -> None:
        """Read by it from now on; None: not by NIXL."""
        self._access = access
        path, self._path = self._path, None
        if path is not None:
            self._closing.submit(self._memory.leave, path)
