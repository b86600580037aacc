"""How the sockets that carry KV are set, on both sides."""

import socket
from contextlib import suppress

_BULK = 0x08
"""IPTOS_THROUGHPUT: queues that tell classes apart let everything else go first."""


def for_bulk(connection: socket.socket) -> None:
    """How data sockets of both sides are set: no waiting for more, and behind all else."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    with suppress(OSError):  # not every system has classes of service
        if connection.family == socket.AF_INET6:
            connection.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _BULK)
        else:
            connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _BULK)
