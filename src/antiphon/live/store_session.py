"""One life of a worker's stream to the store: what can be asked, and the memory to copy from."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

from antiphon.errors import PeerError
from antiphon.store.transfer import MappedRegion, Miss
from antiphon.types import STORE, Forget, LeaseId, Locate, Located, PagePull, Put, Release, Seconds
from antiphon.wire import Calls, FrameStream, Kind

from .kv_listeners import KvListeners

_SLICE_BYTES = 32 << 20
"""About 2 ms: so long a copy goes on that nobody waits for any more."""


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

    async def locate(self, locate: Locate) -> Located:
        """Where the blocks lie, as the store says: nothing of it is checked. Raises `PeerError`."""
        return await self._calls.call(Kind.LOCATE, locate, (Kind.LOCATED,))

    def release(self, lease: LeaseId) -> None:
        """Nobody reads under it any more. If it gets lost the lease runs out by itself."""
        with suppress(PeerError):
            self._stream.send(Kind.RELEASE, Release(owner=STORE, lease=lease))

    def copy(self, pages: Sequence[PagePull], stopped: Callable[[], bool]) -> "Future[PagesCopied]":
        """Copy and verify, on the thread, until a page is bad or `stopped` says so there.

        Nothing is written any more when the future is done, or could be cancelled.
        """
        return self._threads.submit(self._copy, pages, stopped)

    def unmap(self) -> None:
        """Let the memory go, on the thread."""
        self._threads.submit(self._memory.close)

    def _copy(self, pages: Sequence[PagePull], stopped: Callable[[], bool]) -> PagesCopied:
        before = self._memory.missed.copy()
        size = max(1, _SLICE_BYTES // self._memory.header.page_bytes)
        good: list[bool] = []
        while len(good) < len(pages) and all(good) and not stopped():
            good += self._memory.pull(pages[len(good) : len(good) + size])
        return PagesCopied(tuple(good), self._memory.missed - before)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoreAccess:
    """What a worker needs to use the store.

    `session` is the present one, if there is any; `settled` returns when it is not worth waiting
    for one any more; `on_session` has its argument called at the begin of each. `heard` passes on
    what the worker's page pool says; `fetch_timeout_s` is the most that a request waits for what
    the store has. `pace_s`: so often a bit may be done that nobody waits for.
    """

    session: Callable[[], StoreSession | None]
    settled: Callable[[], Awaitable[None]]
    heard: KvListeners
    on_session: Callable[[Callable[[], None]], None]
    fetch_timeout_s: Seconds
    pace_s: Seconds
