"""Streams over real sockets."""

import asyncio
import socket
from collections.abc import Callable

from antiphon.types import LeaseHeld, LeaseId, TakenLease
from antiphon.wire import TO_OWNER, TO_TAKER, Ending, Frame, FrameStream, owned_by_loop

LEASE = TakenLease(LeaseId("lease"), 1)
HELD = LeaseHeld(LeaseId("lease"))


class Ear:
    """Takes what a stream brings."""

    def __init__(self, stream: FrameStream) -> None:
        self.stream = stream
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()
        self.endings: list[Ending] = []
        self.over = asyncio.Event()
        stream.on_frame, stream.on_end = self.frames.put_nowait, self._ended

    def _ended(self, ending: Ending) -> None:
        self.endings.append(ending)
        self.over.set()

    async def frame(self) -> Frame:
        return await asyncio.wait_for(self.frames.get(), 10)

    async def ending(self) -> Ending:
        await asyncio.wait_for(self.over.wait(), 10)
        return self.endings[0]


async def on_socket(
    connection: socket.socket,
    receives: dict[int, int],
    clock: Callable[[], float],
    *,
    answers: bool = False,
) -> Ear:
    """A stream over one end of a socket pair."""
    connection.setblocking(False)
    stream = FrameStream(receives, clock=clock, answers=answers)
    ear = Ear(stream)
    with owned_by_loop(connection):
        await asyncio.get_running_loop().create_unix_connection(lambda: stream, sock=connection)
    return ear


async def until(condition: Callable[[], bool]) -> None:
    """Return when it holds; checked after each pass of the loop, for ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def pair(clock: HandClock) -> tuple[Ear, Ear]:
    """An owner and a taker."""
    one, other = socket.socketpair()
    return await on_socket(one, TO_OWNER, clock), await on_socket(other, TO_TAKER, clock)


async def half(clock: HandClock, *, answers: bool = False) -> tuple[Ear, socket.socket]:
    """An owner, and the bare socket at the other end."""
    one, other = socket.socketpair()
    other.settimeout(10)
    return await on_socket(one, TO_OWNER, clock, answers=answers), other


async def received(other: socket.socket) -> bytes:
    """All that comes until the end."""

    def read() -> bytes:
        parts = []
        while part := other.recv(65536):
            parts.append(part)
        return b"".join(parts)

    return await asyncio.to_thread(read)
