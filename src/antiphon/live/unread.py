"""Frames that came over a stream and that nobody has read yet, in lanes with one reader each.

They are kept as they came: whoever reads one decodes it. Above `MAX_UNREAD_BYTES` in all lanes
nothing more is read from the socket, so that the other side waits; half of that, and it goes on.
"""

import asyncio
from collections import deque

from antiphon.wire import Frame, FrameStream

MAX_UNREAD_BYTES = 4 * 2**20
_FRAME_BYTES = 256
"""What a frame costs while it waits, beside its bytes: even empty ones are few."""


class Unread:
    """The waiting frames of one stream, in `lanes` lanes."""

    def __init__(self, stream: FrameStream, lanes: int = 1) -> None:
        self._stream = stream
        self._lanes: tuple[deque[Frame], ...] = tuple(deque() for _ in range(lanes))
        self._news = tuple(asyncio.Event() for _ in range(lanes))
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def put(self, frame: Frame, lane: int = 0) -> None:
        """One more frame. Mutates; never waits."""
        self._lanes[lane].append(frame)
        self._bytes += len(frame.payload) + _FRAME_BYTES
        if self._bytes > MAX_UNREAD_BYTES:
            self._stream.pause()
        self._news[lane].set()

    async def next(self, lane: int = 0) -> Frame | None:
        """The next frame of this lane; None: the stream is over, and all was read."""
        waiting, news = self._lanes[lane], self._news[lane]
        while True:
            lives = self._stream.alive()
            if waiting:
                return self._taken(waiting.popleft())
            if not lives:
                return None
            news.clear()
            await news.wait()

    def forget(self) -> None:
        """What waits is of no use any more."""
        for lane in self._lanes:
            lane.clear()
        self._bytes = 0

    def wake(self) -> None:
        """The stream is over: readers that wait shall find out."""
        for news in self._news:
            news.set()

    def _taken(self, frame: Frame) -> Frame:
        self._bytes -= len(frame.payload) + _FRAME_BYTES
        if self._bytes <= MAX_UNREAD_BYTES // 2:
            self._stream.resume()
        return frame
