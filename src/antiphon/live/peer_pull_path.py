"""KV of workers in other processes: calls over their data sockets, pages from memory or over TCP.

The first call to an owner's life connects and brings the file descriptor of its memory; the first
copy maps it. An owner on another host is asked over TLS, and its pages are read over TCP. One life
of each owner is kept, until the next one comes or its stream is over: memory of a dead process
stays taken for as long as anybody maps it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from antiphon.core.handover import Owner
from antiphon.errors import PeerError
from antiphon.types import (
    MOST_LINKS,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    LinkUse,
    PeerHello,
    Pull,
    RequestId,
    Seconds,
    Transport,
    WorkerId,
    WorkerInfo,
)

from .kv_pages import OwnersPages
from .network import Address
from .peer_client import PeerClient
from .pull_path import Copied

MAX_OWNERS = 512
KEPT_S: Seconds = 2.0
"""How long memory of an owner that went away can still be read, for pulls that are under way."""


class _Peer:
    """One life of an owner: its calls, and its pages."""

    def __init__(self, owner: Owner, pages: OwnersPages) -> None:
        self.owner = owner
        self.pages = pages
        self.client: PeerClient | None = None
        self.closed = False

    def close(self) -> None:
        """Give calls and pages back."""
        if self.closed:
            return
        self.closed = True
        if self.client is not None:
            self.client.close()
        self.pages.close()


class PeerPullPath:
    """Implements `PullPath`. `reach` says where an owner is asked, and raises `PeerError` if
    it can't be; `pages` makes what its pages are copied from.

    `info` is this worker's own, of its present life. `nixl`: owners on other hosts are asked where
    NIXL reads their pages.
    """

    def __init__(
        self,
        info: Callable[[], WorkerInfo],
        reach: Callable[[Owner], Address],
        pages: Callable[[Owner], OwnersPages],
        *,
        clock: Callable[[], Seconds],
        nixl: bool = False,
        timeout_s: Seconds = 2.0,
        kept_s: Seconds = KEPT_S,
    ) -> None:
        self._info = info
        self._reach = reach
        self._pages = pages
        self._clock = clock
        self._nixl = nixl
        self._timeout_s = timeout_s
        self._kept_s = kept_s
        self._peers: dict[WorkerId, _Peer] = {}
        self._pulled: Counter[tuple[WorkerId, Transport]] = Counter()
        """Bytes, of all lives of an owner."""

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
        copied = await peer.pages.copy(pull)
        self._count(offer.owner, peer.pages.transport, sum(copied.good) * offer.kv.page_bytes)
        return copied

    def _count(self, owner: WorkerId, transport: Transport, size: int) -> None:
        self._pulled[owner, transport] += size
        while len(self._pulled) > MAX_OWNERS:
            del self._pulled[min(self._pulled, key=lambda one: (self._pulled[one], one))]

    def links(self) -> tuple[LinkUse, ...]:
        """From whom how much was pulled: of many, those of whom most."""
        most = sorted(self._pulled, key=lambda one: (-self._pulled[one], one))[:MOST_LINKS]
        return tuple(self._link(owner, transport) for owner, transport in sorted(most))

    def _link(self, owner: WorkerId, transport: Transport) -> LinkUse:
        peer = self._peers.get(owner)
        here = peer is not None and peer.pages.transport is transport
        return LinkUse(
            owner=owner,
            transport=transport,
            bytes_total=self._pulled[owner, transport],
            paths=peer.pages.paths() if peer is not None and here else (),
        )

    def stop(self, request: RequestId, attempt: int) -> None:
        """See `PullPath`."""
        for peer in self._peers.values():
            peer.pages.stop(request, attempt)

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
        peer = self._peers[owner.worker] = _Peer(owner, self._pages(owner))
        return peer

    def _client(self, owner: Owner) -> PeerClient:
        address = self._reach(owner)
        peer = self._peer(owner)
        if peer.client is None:
            peer.client = self._new_client(peer, address)
        return peer.client

    def _new_client(self, peer: _Peer, address: Address) -> PeerClient:
        info, owner = self._info(), peer.owner
        assert info.kv is not None
        hello = PeerHello(
            taker=info.id,
            incarnation=info.incarnation,
            owner=owner.worker,
            owner_incarnation=owner.incarnation,
            kv=info.kv,
            descriptor=True,
            nixl=self._nixl,
        )
        return PeerClient(
            address,
            hello,
            on_memory=peer.pages.memory_came,
            on_access=peer.pages.access_came,
            clock=self._clock,
            timeout_s=self._timeout_s,
            on_over=partial(self._went_away, peer),
        )
