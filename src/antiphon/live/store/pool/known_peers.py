"""Which other stores a store of a pool has heard of, and the call to each."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from antiphon.core.store_pool.peer_address import MOST_PEERS, PeerAddress, parse_peer
from antiphon.types import StoreName

from .pool_link import PoolLink


class KnownPeers:
    """A link to each that was heard of. Their number is bounded: who is there stays, who does not
    answer makes room for another."""

    def __init__(
        self,
        own_name: StoreName,
        link_to: Callable[[PeerAddress], PoolLink],
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self.links: dict[StoreName, PoolLink] = {}
        self._own_name = own_name
        self._link_to = link_to
        self._spawn = spawn
        self._dialing: dict[StoreName, asyncio.Task[None]] = {}
        self._closed = False

    def hear_of(self, text: str, *, name: StoreName | None = None) -> None:
        """There is a store at NAME@HOST:PORT (with `name`: that one, or nobody): call it, unless it
        is known there, or is this one. Text that is no address is passed over. Mutates."""
        peer = parse_peer(text)
        if peer is None or self._closed or (name is not None and peer.name != name):
            return
        known = self.links.get(peer.name)
        if peer.name == self._own_name or (known and known.address == peer):
            return
        if known is not None:
            if known.present:
                return
            self._dialing.pop(peer.name).cancel()
        elif len(self.links) >= MOST_PEERS and not self._dropped_an_absent_one():
            return
        link = self._link_to(peer)
        self.links[peer.name] = link
        self._dialing[peer.name] = self._spawn(link.run())

    def close(self) -> list["asyncio.Task[None]"]:
        """Nobody is called any more: the calls, which are to be cancelled."""
        self._closed = True
        return list(self._dialing.values())

    def _dropped_an_absent_one(self) -> bool:
        """Whether a store that does not answer made room for another."""
        for name, link in self.links.items():
            if not link.present:
                self._dialing.pop(name).cancel()
                del self.links[name]
                return True
        return False
