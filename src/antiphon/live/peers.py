"""All owners that a worker takes from: one client each, of the newest life that it met."""

from collections.abc import Callable
from pathlib import Path

from antiphon.errors import PeerError
from antiphon.types import (
    Incarnation,
    KvShape,
    PeerHello,
    Seconds,
    WorkerId,
    WorkerInfo,
)

from .peer_client import PeerClient
from .socket_folder import data_socket

MAX_OWNERS = 512


class Peers:
    """Makes clients when they are first asked for. `taker` says who this worker is now.

    `on_memory` gets each owner's memory once a life: the file descriptor is its own from then on,
    and it may raise `PeerError` if it can't use it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        taker: Callable[[], WorkerInfo],
        on_memory: Callable[[WorkerId, Incarnation, int, KvShape], None],
        clock: Callable[[], Seconds],
        timeout_s: Seconds = 2.0,
    ) -> None:
        self._folder = folder
        self._taker = taker
        self._on_memory = on_memory
        self._clock = clock
        self._timeout_s = timeout_s
        self._clients: dict[WorkerId, tuple[Incarnation, PeerClient]] = {}

    def __len__(self) -> int:
        """Owners that have a client."""
        return len(self._clients)

    def of(self, owner: WorkerId, incarnation: Incarnation) -> PeerClient:
        """The client of this life of the owner; mutates. That of another life is closed.

        Raises `PeerError` if this worker exchanges no KV or has met too many owners.
        """
        known = self._clients.get(owner)
        if known is not None and known[0] == incarnation:
            return known[1]
        self.forget(owner)
        client = self._client(owner, incarnation)
        self._clients[owner] = (incarnation, client)
        return client

    def forget(self, owner: WorkerId) -> None:
        """Close this owner's client, if there is one; mutates."""
        if known := self._clients.pop(owner, None):
            known[1].close()

    def close(self) -> None:
        """Close all: this worker's life is over. The next `of` begins anew."""
        for owner in list(self._clients):
            self.forget(owner)

    def _client(self, owner: WorkerId, incarnation: Incarnation) -> PeerClient:
        info = self._taker()
        if info.kv is None:
            raise PeerError(f"{info.id} exchanges no KV")
        if len(self._clients) >= MAX_OWNERS:
            raise PeerError(f"{MAX_OWNERS} owners are more than a worker takes from")
        path = data_socket(self._folder, owner)
        if path.parent != self._folder:
            raise PeerError(f"{owner!r:.80} is no worker's name")
        hello = PeerHello(
            taker=info.id,
            incarnation=info.incarnation,
            owner=owner,
            owner_incarnation=incarnation,
            kv=info.kv,
            descriptor=True,
        )
        return PeerClient(
            path,
            hello,
            on_memory=lambda descriptor, kv: self._on_memory(owner, incarnation, descriptor, kv),
            clock=self._clock,
            timeout_s=self._timeout_s,
        )
