"""A store among others: who it is, where it is reached, and how its blocks travel."""

from dataclasses import dataclass, field

from antiphon.core.store_pool.peer_address import PeerAddress

from .block_coder import Coding
from .pool_dial import Dial


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """This store's name and address, where its pages are served (`sealed`: over encrypted sockets
    only), and how it calls others. `here`: all of them are on this host. `coding`: at which level
    it reads from them."""

    address: PeerAddress
    data: tuple[str, ...]
    sealed: bool
    here: bool
    dial: Dial
    coding: Coding = field(default_factory=Coding)
