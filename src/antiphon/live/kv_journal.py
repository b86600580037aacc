"""What came to a holder of KV and left it, numbered, for whoever keeps an index of it.

    pool ── BlockStored, BlockRemoved ──► KvJournal ──► KvFeed ──► KvDump, KvEvents, … ──► a reader
                                                          ▲ KvReplay(first) ◄──────────────┘

A feed begins with all that is held, and goes on with the changes since. It keeps no queue of its
own: it is a place in the journal, which remembers the newest changes only. A reader that is too
slow for that, or that has missed something older, gets all that is held again. So memory is bounded
whatever readers do, and what a reader knows is the truth once it has read to the end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeAlias, runtime_checkable

from antiphon.types import (
    BlockKey,
    BlockStored,
    KvChange,
    KvDump,
    KvEvent,
    KvEvents,
    KvReplay,
    Tier,
)

KvNews: TypeAlias = KvDump | KvEvents

KEPT_CHANGES = 16_384
"""A reader that has missed more than these is told everything again."""
MESSAGE_CHANGES = 1024
"""Most changes, or blocks of a dump, in one message: some 40 KB, and a few milliseconds of whoever
takes it in."""


@runtime_checkable
class KvSource(Protocol):
    """Whoever holds blocks that can be found by key, and says which."""

    def kv_news(self) -> AsyncIterator[KvNews]:
        """All that is held, then every change, in order, until the holder is gone. One reader."""
        ...

    def kv_replay(self, wish: KvReplay) -> None:
        """The reader has missed something: the news go on from there, or with a dump."""
        ...


class KvJournal:
    """The changes of one holder, from 0 on. `held` lists all blocks that it holds at this moment;
    it may be read while they change, and then needs to be right only about those that do not.

    The newest `kept` changes can be read again. All of it runs on one event loop.
    """

    def __init__(
        self,
        held: Callable[[], Iterable[tuple[BlockKey, Tier]]],
        *,
        kept: int = KEPT_CHANGES,
    ) -> None:
        self._held = held
        self._kept = kept
        self._ring: list[KvChange] = []
        """Change n lies at n modulo `kept`."""
        self._next = 0
        self._waiting: list[asyncio.Event] = []

    @property
    def next(self) -> int:
        """The number that the next change will have."""
        return self._next

    @property
    def oldest(self) -> int:
        """The first change that can still be read."""
        return self._next - len(self._ring)

    def note(self, change: KvChange) -> None:
        """Something came or went. Mutates; never waits."""
        if self._next < self._kept:
            self._ring.append(change)
        else:
            self._ring[self._next % self._kept] = change
        self._next += 1
        if self._waiting:
            self.wake()

    def heard(self, event: KvEvent) -> None:
        """`note`, for what a page pool says of a worker's own memory."""
        self.note(KvChange(event.key, Tier.DEVICE, isinstance(event, BlockStored)))

    def feed(self) -> "KvFeed":
        """A reader's place, before everything."""
        return KvFeed(self)

    def dump(self) -> Iterator[KvDump]:
        """All that is held, in parts, each made when it is read: a million blocks in one piece
        would keep the loop from all else for seconds.

        All parts say the number that the next change had when the first one was read. Whatever
        changed since may be in a part, or not: who reads those changes, too, knows the truth. What
        did not change is in one of them.
        """
        held, after = iter(self._held()), self._next
        part, begins = tuple(islice(held, MESSAGE_CHANGES)), True
        while begins or part:
            following = tuple(islice(held, MESSAGE_CHANGES))
            yield KvDump(next=after, begins=begins, ends=not following, blocks=part)
            part, begins = following, False

    def since(self, first: int) -> KvEvents:
        """Changes from number `first`, which can still be read, on: not more than fit a message."""
        numbers = range(first, min(self._next, first + MESSAGE_CHANGES))
        changes = tuple(self._ring[number % self._kept] for number in numbers)
        return KvEvents(first=first, changes=changes)

    async def changed(self) -> None:
        """Return when there is one more change, or somebody is to look again."""
        news = asyncio.Event()
        self._waiting.append(news)
        try:
            await news.wait()
        finally:
            if news in self._waiting:
                self._waiting.remove(news)

    def wake(self) -> None:
        """Have all feeds look whether there is something to say."""
        for news in self._waiting:
            news.set()
        self._waiting.clear()


class KvFeed:
    """One reader's place in a journal. Implements `KvSource`."""

    def __init__(self, journal: KvJournal) -> None:
        self._journal = journal
        self._at: int | None = None
        """The number of the change that is said next; None: all that is held comes first."""

    def kv_replay(self, wish: KvReplay) -> None:
        """See `KvSource`. A number that never was is answered with a dump."""
        known = self._at is not None and self._journal.oldest <= wish.first <= self._at
        self._at = wish.first if known else None
        self._journal.wake()

    async def kv_news(self) -> AsyncIterator[KvNews]:
        """See `KvSource`. Never ends."""
        journal = self._journal
        while True:
            if self._at is None or self._at < journal.oldest:
                self._at = journal.next
                for part in journal.dump():
                    yield part
            elif self._at < journal.next:
                events = journal.since(self._at)
                self._at += len(events.changes)
                yield events
            else:
                await journal.changed()
