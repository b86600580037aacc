"""Which other stores a store of a pool has heard of, and the call to each."""

import asyncio
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any

from antiphon.core.store_pool.peer_address import MOST_PEERS, PeerAddress, parse_peer
from antiphon.types import StoreName

from .pool_link import PoolLink


class Said(IntEnum):
    """Who says where a store is; of two, the greater is believed."""

    BY_OTHERS = 0
    IN_CONFIG = 1
    BY_ITSELF = 2


class KnownPeers:
    """A link to each that was heard of. Their number is bounded: who is there stays, who does not
    answer makes room for another, but a configured one for none that others speak of.

    `on_forgotten` hears of who has made room.
    """

    def __init__(
        self,
        own_name: StoreName,
        link_to: Callable[[PeerAddress], PoolLink],
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        on_forgotten: Callable[[StoreName], None] = lambda name: None,
    ) -> None:
        self.links: dict[StoreName, PoolLink] = {}
        self._own_name = own_name
        self._link_to = link_to
        self._spawn = spawn
        self._on_forgotten = on_forgotten
        self._dialing: dict[StoreName, asyncio.Task[None]] = {}
        self._said: dict[StoreName, Said] = {}
        self._closed = False

    def hear_of(self, text: str, said: Said, *, name: StoreName | None = None) -> None:
        """There is a store at NAME@HOST:PORT (with `name`: that one, or nobody): call it, unless it
        is this one, or is known from who knows better, or by all these paths. Text that is no
        address is passed over. Mutates."""
        peer = parse_peer(text)
        if peer is None or self._closed or (name is not None and peer.name != name):
            return
        if peer.name == self._own_name:
            return
        known = self.links.get(peer.name)
        if known is not None:
            if not self._is_news(known, peer, said):
                return
            self._dialing.pop(peer.name).cancel()
        elif len(self.links) >= MOST_PEERS and not self._made_room(said):
            return
        link = self._link_to(peer)
        self.links[peer.name], self._said[peer.name] = link, said
        self._dialing[peer.name] = self._spawn(link.run())

    def close(self) -> list["asyncio.Task[None]"]:
        """Nobody is called any more: the calls, which are to be cancelled."""
        self._closed = True
        return list(self._dialing.values())

    def _is_news(self, known: PoolLink, peer: PeerAddress, said: Said) -> bool:
        """Whether to call it there from now on. Never by fewer of the paths that are known."""
        if set(peer.paths) <= set(known.address.paths):
            self._said[peer.name] = max(said, self._said[peer.name])
            return False
        return not known.present and said >= self._said[peer.name]

    def _made_room(self, said: Said) -> bool:
        """Whether a store that does not answer made room for another: one that is known from no
        better source."""
        absent = [name for name, link in self.links.items() if not link.present]
        name = min(absent, key=self._said.__getitem__, default=None)
        if name is None or self._said[name] > said:
            return False
        self._dialing.pop(name).cancel()
        del self.links[name], self._said[name]
        self._on_forgotten(name)
        return True
