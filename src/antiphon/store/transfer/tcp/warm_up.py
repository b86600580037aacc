"""Compiled code is made, or loaded, before a request waits for it: by a connection that is dead."""

import socket
from contextlib import suppress

import numpy as np

from antiphon.core.transfer import Cut, Slice
from antiphon.errors import PeerError
from antiphon.store.transfer.region import OwnedRegion

from .asked_slices import PlainAsked
from .reading import Reading
from .served_slices import PlainServed
from .vectored_io import Patience

_PATIENCE = Patience(1.0, 1.0)


def warm_up_owner(region: OwnedRegion) -> None:
    """What `served_slices` needs."""
    left, right = socket.socketpair()
    right.close()
    with left, suppress(PeerError):
        PlainServed(left.fileno(), region).run(np.zeros(3, np.int64), _PATIENCE)


def warm_up_taker(own: OwnedRegion) -> None:
    """What `asked_slices` and `reading` need."""
    page_bytes = own.header.page_bytes
    reading = Reading(np.zeros((1, 4), np.uint64), own, Cut.of(1, [(0, page_bytes)], page_bytes))
    one = Slice(pull=0, group=0, part=0, bytes=page_bytes)
    left, right = socket.socketpair()
    right.close()
    with left:
        asked = PlainAsked(left.fileno())
        for step in (asked.ask, asked.receive):
            with suppress(PeerError):
                step(0, one, reading, _PATIENCE)
    reading.blame(one, np.full(1, 1, np.uint8))
    reading.prove_slice(one, reading.verdicts)
