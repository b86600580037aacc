"""Streams over real sockets."""

import asyncio
import socket
from collections.abc import Callable

from antiphon.wire import Ending, Frame, FrameStream, owned_by_loop


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
