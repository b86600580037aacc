"""A socket that a loop has taken over never closes a descriptor of somebody else."""

import asyncio
import socket
from typing import Any

import pytest
from wire_kit import until

from antiphon.wire import owned_by_loop


class Aborts(asyncio.Protocol):
    """Ends the connection as soon as there is one."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()


async def connect(connection: socket.socket, protocol: asyncio.Protocol) -> asyncio.Transport:
    connection.setblocking(False)
    with owned_by_loop(connection):
        transport, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: protocol, sock=connection
        )
    return transport


async def heard_the_end(other: socket.socket) -> bool:
    other.settimeout(10)
    return await asyncio.to_thread(other.recv, 1) == b""


async def closed_once(connection: socket.socket, other: socket.socket) -> None:
    """The loop closed the descriptor, and the object can't close the number a second time."""
    assert await heard_the_end(other)
    await until(lambda: connection.fileno() == -1)
    other.close()


async def test_a_connection_that_ends_while_it_is_made() -> None:
    """uvloop 738: the object closed a number that another connection had got meanwhile."""
    ours, other = socket.socketpair()
    await connect(ours, Aborts())
    await closed_once(ours, other)


async def test_a_call_that_is_cancelled() -> None:
    """uvloop 738, as it was reported: a time limit for the connection."""
    ours, other = socket.socketpair()
    connecting = asyncio.create_task(connect(ours, asyncio.Protocol()))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await closed_once(ours, other)


async def test_a_connection_that_lives_and_is_closed() -> None:
    ours, other = socket.socketpair()
    transport = await connect(ours, asyncio.Protocol())
    transport.write(b"x")
    assert await asyncio.to_thread(other.recv, 1) == b"x"
    transport.close()
    await closed_once(ours, other)
