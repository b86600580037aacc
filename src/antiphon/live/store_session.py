"""One life of a worker's stream to the store: what can be asked, and the memory to copy from."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

from antiphon.errors import PeerError
from antiphon.store.transfer import MappedRegion, Miss, Part
from antiphon.types import STORE, Forget, LeaseId, Locate, Located, PagePull, Put, Release, Seconds
from antiphon.wire import Calls, FrameStream, Kind

from .kv_listeners import KvListeners

_SLICE_BYTES = 32 << 20
"""About 2 ms: so long a copy goes on that nobody waits for any more."""
_BYTES_PER_S = 10e9
"""Taken for the speed of copies until one was seen."""


@dataclass(frozen=True, slots=True)
class PagesCopied:
    """`good` says of the first pages, up to the slice with the first bad one, what came of them.

    `missed` counts the bad ones by reason.
    """

    good: tuple[bool, ...]
    missed: Counter[Miss]


class StoreSession:
    """Good until the stream is over: from then on nothing is sent, and who asks gets `PeerError`.

    Memory stays mapped for the copies that were asked for before `unmap`. `threads` has one thread.
    """

    def __init__(
        self, stream: FrameStream, calls: Calls, memory: MappedRegion, threads: Executor
    ) -> None:
        self._stream = stream
        self._calls = calls
        self._memory = memory
        self._threads = threads
        self._bytes_per_s = _BYTES_PER_S

    @property
    def alive(self) -> bool:
        """Whether the store may still answer."""
        return self._stream.alive()

    @property
    def unsent_bytes(self) -> int:
        """What waits until the store reads."""
        return self._stream.unsent_bytes

    def put(self, put: Put) -> None:
        """Offer blocks; never waits. Raises `PeerError`."""
        self._stream.send(Kind.PUT, put)

    def forget(self, forget: Forget) -> None:
        """Blocks that were put are in doubt; never waits. Raises `PeerError`."""
        self._stream.send(Kind.FORGET, forget)

    def locate(self, locate: Locate) -> "asyncio.Future[Located]":
        """Where the blocks lie, as the store says: nothing of it is checked. Raises, or ends with,
        `PeerError`."""
        return self._calls.ask(Kind.LOCATE, locate, (Kind.LOCATED,))

    def release(self, lease: LeaseId) -> None:
        """Nobody reads under it any more. If it gets lost the lease runs out by itself."""
        with suppress(PeerError):
            self._stream.send(Kind.RELEASE, Release(owner=STORE, lease=lease))

    def copy(self, pages: Sequence[PagePull], stopped: Callable[[], bool]) -> "Future[PagesCopied]":
        """Copy and verify, on the thread, until a page is bad or `stopped` says so there.

        Nothing is written any more when the future is done, or could be cancelled.
        """
        return self._threads.submit(self._copy, pages, stopped)

    def copy_parts(
        self,
        pages: Sequence[PagePull],
        parts: Sequence[Part],
        stopped: Callable[[], bool],
        here: Callable[[int], None],
    ) -> "Future[PagesCopied]":
        """`copy`, part by part over all pages, from the first bytes of each to the last.

        `here` is called on the thread: so many parts of all pages are here; with the last part
        all pages are good. If one is bad, the pages before it are still copied.
        """
        return self._threads.submit(self._copy_parts, pages, parts, stopped, here)

    def copy_here(self, pages: Sequence[PagePull]) -> PagesCopied:
        """`copy`, on the caller's thread: for a few pages a thread costs more than the copy."""
        return self._copy(pages, lambda: False)

    def copy_s(self, pages: int) -> Seconds:
        """How long so many pages take, as fast as they came last."""
        return pages * self._memory.header.page_bytes / self._bytes_per_s

    def unmap(self) -> None:
        """Let the memory go, on the thread."""
        self._threads.submit(self._memory.close)

    def _copy(self, pages: Sequence[PagePull], stopped: Callable[[], bool]) -> PagesCopied:
        before, began = self._memory.missed.copy(), time.monotonic()
        size = max(1, _SLICE_BYTES // self._memory.header.page_bytes)
        good: list[bool] = []
        while len(good) < len(pages) and all(good) and not stopped():
            good += self._memory.pull(pages[len(good) : len(good) + size])
        self._came(len(good), time.monotonic() - began)
        return PagesCopied(tuple(good), self._memory.missed - before)

    def _copy_parts(
        self,
        pages: Sequence[PagePull],
        parts: Sequence[Part],
        stopped: Callable[[], bool],
        here: Callable[[int], None],
    ) -> PagesCopied:
        before, began, wanted = self._memory.missed.copy(), time.monotonic(), len(pages)
        good: tuple[bool, ...] = ()
        for number, part in enumerate(parts, start=1):
            good = self._copy_part(pages, part, stopped)
            if len(good) < len(pages) and all(good):
                return PagesCopied((), self._memory.missed - before)  # stopped
            pages = pages[: good.index(False) if False in good else len(good)]
            if len(pages) == wanted:
                here(number)
        self._came(len(pages), time.monotonic() - began)
        return PagesCopied(good, self._memory.missed - before)

    def _copy_part(
        self, pages: Sequence[PagePull], part: Part, stopped: Callable[[], bool]
    ) -> tuple[bool, ...]:
        """Up to the slice with the first bad page, or until it is stopped."""
        size = max(1, _SLICE_BYTES // (part.end - part.start))
        good: list[bool] = []
        while len(good) < len(pages) and all(good) and not stopped():
            good += self._memory.pull_part(pages[len(good) : len(good) + size], part)
        return tuple(good)

    def _came(self, pages: int, seconds: Seconds) -> None:
        if pages and seconds > 0:
            self._bytes_per_s = pages * self._memory.header.page_bytes / seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoreAccess:
    """What a worker needs to use the store.

    `session` is the present one, if there is any; `settled` returns when it is not worth waiting
    for one any more; `on_session` has its argument called at the begin of each. `heard` passes on
    what the worker's page pool says; `fetch_timeout_s` is the most that a request waits for what
    the store has. `pace_s`: so often a bit may be done that nobody waits for. A fetch that takes
    long comes in up to `layer_groups` groups of the model's `layers`.
    """

    session: Callable[[], StoreSession | None]
    settled: Callable[[], Awaitable[None]]
    heard: KvListeners
    on_session: Callable[[Callable[[], None]], None]
    fetch_timeout_s: Seconds
    pace_s: Seconds
    layers: int = 1
    layer_groups: int = 1
