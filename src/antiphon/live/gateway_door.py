"""Where workers join a gateway: its door, as the configuration wants it."""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from antiphon.types import (
    Config,
    Incarnation,
    JoinRefused,
    Seconds,
    Welcome,
    WorkerId,
    WorkerInfo,
)

from .join_socket import JoinSocket
from .network import bound, reach_of
from .remote_worker import RemoteWorker
from .socket_folder import gateway_socket

Judge = Callable[[WorkerInfo, Mapping[WorkerId, WorkerInfo]], JoinRefused | None]


def gateway_door(
    config: Config,
    sockets: Path,
    *,
    judge: Judge,
    on_join: Callable[[RemoteWorker], None],
    clock: Callable[[], Seconds],
) -> JoinSocket:
    """A door that `start` opens: to workers of this host, and, with keys, to those of others.

    Raises `UsageError` if the keys will not do, or the port is taken.
    """
    cluster, network = config.cluster, config.network
    door = JoinSocket(
        gateway_socket(sockets),
        judge=judge,
        welcome=Welcome(
            gateway=Incarnation(secrets.token_hex(8)),
            heartbeat_s=cluster.heartbeat_s,
            lost_after_s=cluster.lost_after_s,
            lease_ttl_s=cluster.lease_ttl_s,
        ),
        on_join=on_join,
        clock=clock,
    )
    if (reach := reach_of(network)) is not None:
        listeners = bound(
            network.addresses, network.port, "network.port (port in the cluster's file)"
        )
        door.open_to_hosts(listeners, reach.server)
    return door
