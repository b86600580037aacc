"""Whose process is on this machine: an id that another machine has told is somebody else's here."""

from collections.abc import Mapping

from antiphon.core.faults import GATEWAY

from .control_stream import are_connected
from .lives import Life
from .process_fault import process_of


def is_here(life: Life, lives: Mapping[str, Life]) -> bool:
    """Whether the process with this one's id is the one that is meant: of a worker that has joined
    from another host the one with its stream to the gateway. Raises `PeerError` if the system does
    not let that be seen."""
    if not life.remote:
        return True
    gateway = lives.get(GATEWAY)
    own = process_of(life.pid or 0)
    its = None if gateway is None else process_of(gateway.pid or 0)
    return own is not None and its is not None and are_connected(own, its)
