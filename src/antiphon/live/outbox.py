"""Events on their way from a worker to its one reader."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from antiphon.types import Event

_UNREAD_STEPS = 2
"""So many steps may be unread: the reader handles one while the next is computed."""


class Outbox:
    """Collects events until the reader takes them, all at once.

    It holds at most the events of two steps, what the next one decided, and one end for each
    sequence that ended otherwise: whoever puts a step in waits for `room` before it computes the
    next.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._unread_steps = 0
        self._closed = False
        self._error: BaseException | None = None
        self._news = asyncio.Event()
        self._taken = asyncio.Event()

    def put(self, events: Iterable[Event]) -> None:
        """Mutates; never waits. After `close` the events go nowhere: their reader has left."""
        if self._closed:
            return
        self._events += events
        if self._events:
            self._news.set()

    def put_step(self, events: Iterable[Event]) -> None:
        """Like `put`, and counts as one step against the bound."""
        self._unread_steps += 1
        self.put(events)
        if not self._events:
            self._unread_steps = 0

    async def room(self) -> None:
        """Return when one more step may be computed, at once if the reader keeps up."""
        while self._unread_steps >= _UNREAD_STEPS and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def close(self, error: BaseException | None = None) -> None:
        """The reader gets what is left, then the error or the end. Only the first call counts."""
        if not self._closed:
            self._closed, self._error = True, error
            self._news.set()
            self._taken.set()

    async def read(self) -> AsyncIterator[Sequence[Event]]:
        """Batches until the outbox is closed and empty. One reader at a time."""
        while True:
            if self._events:
                batch, self._events = self._events, []
                self._unread_steps = 0
                self._taken.set()
                yield batch
            elif self._closed:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._news.clear()
                await self._news.wait()
