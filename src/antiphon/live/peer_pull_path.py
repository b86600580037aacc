"""KV of workers in other processes of this host: calls over their data sockets, pages from memory.

The first call to an owner's life connects and brings the file descriptor of its memory; the first
copy maps it. One life of each owner is kept, until the next one comes or its stream is over: memory
of a dead process stays taken for as long as anybody maps it.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
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
from .pull_path import Copied, why_missed

MAX_OWNERS = 512
KEPT_S: Seconds = 2.0
"""How long memory of an owner that went away can still be read, for pulls that are under way."""


class _Peer:
    """One life of an owner: its calls, and its memory as soon as it is known.

    To map and to unmap takes 0.1 s a GiB: that, as all copying, is done by the one thread of
    `threads`, and the lock is held for no longer than a descriptor changes hands.
    """

    def __init__(self, owner: Owner, region: OwnedRegion, threads: Executor) -> None:
        self.owner = owner
        self.client: PeerClient | None = None
        self.closed = False
        self._own = region
        self._threads = threads
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._mapped: MappedRegion | None = None

    def memory_came(self, descriptor: int, shape: KvShape) -> None:
        """Keep the descriptor until it is mapped; a second one says nothing new."""
        with self._lock:
            if self._descriptor is None and self._mapped is None and not self.closed:
                self._descriptor = descriptor
                return
        os.close(descriptor)

    async def copy(self, pull: Pull) -> Copied:
        """Raises `PeerError` if the memory can't be mapped."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._copy, pull)

    def close(self) -> None:
        """Give calls, descriptor and mapping back: these when the copies asked for are done."""
        if self.closed:
            return
        self.closed = True
        if self.client is not None:
            self.client.close()
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
            raise PeerError(f"the memory of owner {self.owner.worker} did not come")
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


class PeerPullPath:
    """Implements `PullPath`. `socket_of` says where a worker's data socket is.

    `info` is this worker's own, of its present life. `threads` has one thread, which outlasts
    `close`: it maps, copies and unmaps, one after the other.
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
        kept_s: Seconds = KEPT_S,
    ) -> None:
        self._info = info
        self._region = region
        self._socket_of = socket_of
        self._threads = threads
        self._clock = clock
        self._timeout_s = timeout_s
        self._kept_s = kept_s
        self._peers: dict[WorkerId, _Peer] = {}

    def __len__(self) -> int:
        """Owners of whom something is kept."""
        return len(self._peers)

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

    async def copy(self, pull: Pull) -> Copied:
        """See `PullPath`."""
        offer = pull.offer
        peer = self._peers.get(offer.owner)
        if peer is None or peer.owner.incarnation != offer.incarnation:
            raise PeerError(f"the memory of owner {offer.owner} is not here")
        return await peer.copy(pull)

    def new_life(self) -> None:
        """This worker has another incarnation now: what owners granted is for the old one."""
        for peer in list(self._peers.values()):
            self._forget(peer)

    def close(self) -> None:
        """Give everything back; memory when the thread has come to it."""
        self.new_life()

    def _forget(self, peer: _Peer) -> None:
        """Close it, and let its place be another's unless it is already."""
        peer.close()
        if self._peers.get(peer.owner.worker) is peer:
            del self._peers[peer.owner.worker]

    def _went_away(self, peer: _Peer) -> None:
        """The stream is over: in most cases the owner's process is."""
        if not peer.closed:
            asyncio.get_running_loop().call_later(self._kept_s, self._forget_if_away, peer)

    def _forget_if_away(self, peer: _Peer) -> None:
        if peer.client is None or not peer.client.connected:
            self._forget(peer)

    def _peer(self, owner: Owner) -> _Peer:
        peer = self._peers.get(owner.worker)
        if peer is not None and peer.owner == owner:
            return peer
        if peer is not None:
            self._forget(peer)
        if len(self._peers) >= MAX_OWNERS:
            raise PeerError(f"{MAX_OWNERS} owners are more than a worker takes from")
        peer = self._peers[owner.worker] = _Peer(owner, self._region, self._threads)
        return peer

    def _client(self, owner: Owner) -> PeerClient:
        path = self._socket_of(owner.worker)
        peer = self._peer(owner)
        if peer.client is None:
            peer.client = self._new_client(peer, path)
        return peer.client

    def _new_client(self, peer: _Peer, path: Path) -> PeerClient:
        info, owner = self._info(), peer.owner
        assert info.kv is not None
        hello = PeerHello(
            taker=info.id,
            incarnation=info.incarnation,
            owner=owner.worker,
            owner_incarnation=owner.incarnation,
            kv=info.kv,
            descriptor=True,
        )
        return PeerClient(
            path,
            hello,
            on_memory=peer.memory_came,
            clock=self._clock,
            timeout_s=self._timeout_s,
            on_over=partial(self._went_away, peer),
        )
