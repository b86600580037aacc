"""Where workers of other hosts reach a worker: bound before it is told to anybody."""

import socket
from dataclasses import dataclass

from antiphon.core.host_names import format_host_port
from antiphon.types import HostPort

from .reach import Reach
from .tls_door import bound


@dataclass(frozen=True, slots=True, eq=False)
class WorkerDoor:
    """`listeners` are for control streams, and whoever opens the door owns them; `data` are the
    endpoints at which pages are to be served, and `data_setting` is what chooses their port."""

    reach: Reach
    at: HostPort
    listeners: tuple[socket.socket, ...]
    data: tuple[str, ...]
    data_setting: str


def worker_door(reach: Reach, number: int) -> WorkerDoor:
    """That of worker `number`, from 0, of this host. Raises `UsageError` if a port is taken."""
    network = reach.network
    port = network.worker_port and network.worker_port + 2 * number
    listeners = bound(network.addresses, port, _setting(2 * number))
    own = listeners[0].getsockname()[1]
    data = tuple(
        "tcp://" + format_host_port(address, port and port + 1) for address in network.addresses
    )
    setting = _setting(2 * number + 1)
    return WorkerDoor(reach, reach.own(own), tuple(listeners), data, setting)


def _setting(above: int) -> str:
    """What chooses the port that is so many above the first worker's first."""
    key = "network.worker_port" + (f" + {above}" if above else "")
    return f"{key} (worker_port in the cluster's file; each worker has two ports from there on)"
