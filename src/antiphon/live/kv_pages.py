"""Pages of one life of an owner, as a taker copies them: see `peer_pull_path`."""

import asyncio
import os
import threading
from concurrent.futures import Executor
from typing import Protocol

from antiphon.errors import PeerError
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import (
    DataAccess,
    KvShape,
    PathUse,
    Pull,
    RequestId,
    Transport,
    WorkerId,
)

from .pull_path import Copied, why_missed


class OwnersPages(Protocol):
    """Where the pages of one life of an owner are copied from. `close` may be repeated."""

    @property
    def transport(self) -> Transport:
        """What brings them now."""
        ...

    def paths(self) -> tuple[PathUse, ...]:
        """The ways to them, if that has several."""
        ...

    def memory_came(self, descriptor: int, shape: KvShape) -> None:
        """The owner's memory, which is this one's own from now on."""
        ...

    def access_came(self, access: DataAccess) -> None:
        """What opens the owner's data socket, until the next comes."""
        ...

    async def copy(self, pull: Pull) -> Copied:
        """Copy and check. Raises `PeerError` if nothing can be had there."""
        ...

    def stop(self, request: RequestId, attempt: int) -> None:
        """Nobody wants what is copied for this attempt: end soon, if that is easy."""
        ...

    def close(self) -> None:
        """Give back what was given, when the copies asked for are done."""
        ...


class MappedPages:
    """Implements `OwnersPages` on one host: the owner's memory is mapped as soon as it is used.

    To map and to unmap takes 0.1 s a GiB: that, as all copying, is done by the one thread of
    `threads`, and the lock is held for no longer than a descriptor changes hands.
    """

    transport = Transport.MEMORY

    def __init__(self, owner: WorkerId, region: OwnedRegion, threads: Executor) -> None:
        self.closed = False
        self._owner = owner
        self._own = region
        self._threads = threads
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._mapped: MappedRegion | None = None

    def paths(self) -> tuple[PathUse, ...]:
        """There is but one."""
        return ()

    def memory_came(self, descriptor: int, shape: KvShape) -> None:
        """Keep the descriptor until it is mapped; a second one says nothing new."""
        with self._lock:
            if self._descriptor is None and self._mapped is None and not self.closed:
                self._descriptor = descriptor
                return
        os.close(descriptor)

    def access_came(self, access: DataAccess) -> None:
        """An owner on this host has nothing to say here."""

    async def copy(self, pull: Pull) -> Copied:
        """Raises `PeerError` if the memory can't be mapped."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._copy, pull)

    def stop(self, request: RequestId, attempt: int) -> None:
        """A copy within one host is over sooner than it could be stopped."""

    def close(self) -> None:
        """Give descriptor and mapping back when the copies asked for are done."""
        if not self.closed:
            self.closed = True
            self._threads.submit(self._give_back)

    # On the thread.

    def _copy(self, pull: Pull) -> Copied:
        if self._mapped is None:
            self._mapped = self._map()
        before = self._mapped.missed.copy()
        good = self._mapped.pull(pull.pages)
        return Copied(good, why_missed(self._mapped.missed - before))

    def _map(self) -> MappedRegion:
        descriptor = self._taken_descriptor()
        if descriptor is None:
            raise PeerError(f"the memory of owner {self._owner} did not come")
        try:
            return MappedRegion(descriptor, self._own)
        finally:
            os.close(descriptor)

    def _give_back(self) -> None:
        descriptor = self._taken_descriptor()
        if descriptor is not None:
            os.close(descriptor)
        if self._mapped is not None:
            self._mapped.close()

    def _taken_descriptor(self) -> int | None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        return descriptor
