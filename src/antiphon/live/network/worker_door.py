"""Where workers of other hosts reach a worker: bound before it is told to anybody."""

import socket
from dataclasses import dataclass

from antiphon.core.host_names import format_host_port
from antiphon.types import HostPort

from .reach import Reach
from .tls_door import bound

_SETTING = "network.worker_port (worker_port in the cluster's file)"


@dataclass(frozen=True, slots=True, eq=False)
class WorkerDoor:
    """`listeners` are for control streams, and whoever opens the door owns them; `data` are the
    endpoints at which pages are to be served. `setting`: what chooses the ports of both."""

    reach: Reach
    at: HostPort
    listeners: tuple[socket.socket, ...]
    data: tuple[str, ...]
    setting: str = _SETTING


def worker_door(reach: Reach, number: int) -> WorkerDoor:
    """That of worker `number`, from 0, of this host. Raises `UsageError` if a port is taken."""
    network = reach.network
    port = network.worker_port and network.worker_port + 2 * number
    listeners = bound(network.addresses, port, _SETTING)
    own = listeners[0].getsockname()[1]
    data = tuple(
        "tcp://" + format_host_port(address, port and port + 1) for address in network.addresses
    )
    return WorkerDoor(reach, reach.own(own), tuple(listeners), data)
