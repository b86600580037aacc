"""TCP ports for servers that a test is about to start."""

import socket


def free_ports(count: int) -> int:
    """The first of so many ports that follow each other, free a moment ago."""
    for first in range(20_000, 60_000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for number, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + number))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")
