"""KV of workers in other processes of this host: calls over their data sockets, pages from memory.

The first call to an owner's life connects and brings the file descriptor of its memory; the first
copy maps it. One life of each owner is kept: the next one unmaps it.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from antiphon.core.handover import Owner
from antiphon.errors import PeerError
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import (
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    PeerHello,
    Pull,
    Seconds,
    WorkerId,
    WorkerInfo,
)

from .peer_client import PeerClient


class _Peer:
    """One life of an owner: its calls, and its memory as soon as it is known."""

    def __init__(self, owner: Owner, region: OwnedRegion) -> None:
        self.owner = owner
        self.client: PeerClient | None = None
        self._own = region
        self._descriptor: int | None = None
        self._mapped: MappedRegion | None = None
        self._closed = False
        self._lock = threading.Lock()

    def memory_came(self, descriptor: int, shape: KvShape) -> None:
        """Keep the descriptor until it is mapped; a second one says nothing new."""
        with self._lock:
            if self._descriptor is None and self._mapped is None and not self._closed:
                self._descriptor = descriptor
                return
        os.close(descriptor)

    def copy(self, pull: Pull) -> tuple[bool, ...]:
        """Blocks. Raises `PeerError` if the memory can't be mapped."""
        return self._map().pull(pull.pages)

    def close(self) -> None:
        """Give calls, descriptor and mapping back; a copy that runs ends first."""
        if self.client is not None:
            self.client.close()
        with self._lock:
            self._closed = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            if self._mapped is not None:
                self._mapped.close()

    def _map(self) -> MappedRegion:
        with self._lock:
            if self._mapped is None:
                if self._descriptor is None:
                    raise PeerError(f"the memory of owner {self.owner.worker} did not come")
                descriptor, self._descriptor = self._descriptor, None
                try:
                    self._mapped = MappedRegion(descriptor, self._own)
                finally:
                    os.close(descriptor)
            return self._mapped


class PeerPullPath:
    """Implements `PullPath`. `socket_of` says where a worker's data socket is.

    `info` is this worker's own, of its present life; `threads` do the copying.
    """

    def __init__(
        self,
        info: Callable[[], WorkerInfo],
        region: OwnedRegion,
        socket_of: Callable[[WorkerId], Path],
        threads: Executor,
        *,
        clock: Callable[[], Seconds],
        timeout_s: Seconds = 2.0,
    ) -> None:
        self._info = info
        self._region = region
        self._socket_of = socket_of
        self._threads = threads
        self._clock = clock
        self._timeout_s = timeout_s
        self._peers: dict[WorkerId, _Peer] = {}

    async def take(self, owner: Owner, lease: LeaseId, attempt: int) -> LeaseHeld | LeaseRefused:
        """See `PullPath`."""
        return await self._client(owner).take(lease, attempt)

    async def renew(
        self, owner: Owner, leases: Sequence[LeaseId]
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        """See `PullPath`."""
        refused = await self._client(owner).renew(leases)
        gone = {one.lease for one in refused}
        return [*refused, *(LeaseHeld(lease) for lease in leases if lease not in gone)]

    async def acknowledge(
        self, owner: Owner, lease: LeaseId, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """See `PullPath`."""
        return await self._client(owner).acknowledge(lease, attempt)

    async def copy(self, pull: Pull) -> tuple[bool, ...]:
        """See `PullPath`."""
        offer = pull.offer
        peer = self._peer(Owner(worker=offer.owner, incarnation=offer.incarnation))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, peer.copy, pull)

    def new_life(self) -> None:
        """This worker has another incarnation now: what owners granted is for the old one."""
        for worker in list(self._peers):
            self._peers.pop(worker).close()

    def close(self) -> None:
        """Give everything back."""
        self.new_life()

    def _peer(self, owner: Owner) -> _Peer:
        peer = self._peers.get(owner.worker)
        if peer is not None and peer.owner == owner:
            return peer
        if peer is not None:
            peer.close()
        peer = self._peers[owner.worker] = _Peer(owner, self._region)
        return peer

    def _client(self, owner: Owner) -> PeerClient:
        peer = self._peer(owner)
        if peer.client is None:
            info = self._info()
            assert info.kv is not None
            hello = PeerHello(
                taker=info.id,
                incarnation=info.incarnation,
                owner=owner.worker,
                owner_incarnation=owner.incarnation,
                kv=info.kv,
                descriptor=True,
            )
            peer.client = PeerClient(
                self._socket_of(owner.worker),
                hello,
                on_memory=peer.memory_came,
                clock=self._clock,
                timeout_s=self._timeout_s,
            )
        return peer.client
