"""The fetches of a worker, carried out: what the store has comes into the pages that wait for it.

    Scheduler.fetches ──► Locate ──► Located ──► copy and verify ──► Release
                                                        └──► FetchEnded ──► Scheduler.fetched

A copy that takes long comes layer by layer: then `on_arriving` hears how far it is, and a step may
begin behind the fetch's gates. They open to the end only over proven pages.

One deadline stands over all of it. Whatever the store does or does not do, a fetch ends in time,
with those blocks that are proven to be what was asked for; the request computes the rest.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from antiphon.core.tiers import LOCATE_SHARE
from antiphon.errors import PeerError
from antiphon.store.transfer import Part
from antiphon.types import BlockKey, Fetch, Locate, Located, PagePull, RequestId, Seconds

from .layer_gates import LayerGates
from .pull_path import why_missed
from .store_session import PagesCopied, StoreSession


class NotFetched(StrEnum):
    """Why blocks did not come; beside these there are the reasons of `Miss`."""

    ABSENT = "absent"
    """There is no store now, or it went away meanwhile."""
    GONE = "gone"
    """The store has not got them, or not any more."""
    LATE = "late"
    """It took longer than a fetch may take."""
    ENDED = "ended"
    """The request ended before."""
    WRONG = "wrong"
    """The answer was none to what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEnded:
    """Nothing is written to the fetch's pages any more; `good` says of each block whether it is
    here. `problem` says why not all are."""

    request: RequestId
    attempt: int
    good: tuple[bool, ...]
    problem: str
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class _Got:
    """How many blocks are here, from the first on, and why no more."""

    blocks: int
    reason: str = ""
    problem: str = ""


@dataclass(slots=True, eq=False)
class _Run:
    fetch: Fetch
    deadline: Seconds
    over: asyncio.Future[None]
    """Done when the request has ended."""
    stop: threading.Event = field(default_factory=threading.Event)
    """For the thread that copies."""
    gates: LayerGates | None = None
    """If it comes layer by layer."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """`on_end` was called, or never will be: a law was broken."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """Of a fetch all whose blocks are there, `here` of `groups` groups of layers have come, each
    in `group_s`."""

    request: RequestId
    attempt: int
    here: int
    groups: int
    group_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroups:
    """How a fetch comes layer by layer: where each group begins, and its bytes in a page."""

    starts: tuple[int, ...]
    parts: tuple[Part, ...]
    on_arriving: Callable[[Arriving], None]
    """On the event loop."""


_MOST_LOSSY = 2**16
SHORT_COPY_S = 0.0001
"""A copy that takes no longer than this is made on the event loop."""
LONG_COPY_S = 0.01
"""A copy that takes so long comes layer by layer: each page is looked at twice for that."""


class StoreFetch:
    """Runs fetches side by side. `on_end` is called once for each, on the event loop.

    A fetch that finds no `session` waits until `settled` returns, and looks again.
    `on_broken` is called if a law was broken meanwhile. `missed` only grows.
    """

    def __init__(
        self,
        session: Callable[[], StoreSession | None],
        settled: Callable[[], Awaitable[None]],
        *,
        timeout_s: Seconds,
        clock: Callable[[], Seconds],
        on_end: Callable[[FetchEnded], None],
        on_broken: Callable[[BaseException], None],
        layers: LayerGroups | None = None,
    ) -> None:
        self.missed: Counter[str] = Counter()
        """Blocks that did not come, by `NotFetched` or `Miss`."""
        self.lossy: dict[BlockKey, None] = {}
        """Blocks that came, and are not to the bit what was put: nobody is to be given them."""
        self._session = session
        self._settled = settled
        self._timeout_s = timeout_s
        self._clock = clock
        self._on_end = on_end
        self._on_broken = on_broken
        self._layers = layers
        self._runs: dict[tuple[RequestId, int], _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[asyncio.Future[Located]] = set()

    def __len__(self) -> int:
        """Fetches that have not ended."""
        return len(self._runs)

    def begin(self, fetch: Fetch) -> None:
        """Locate, copy, release."""
        loop = asyncio.get_running_loop()
        run = _Run(fetch, self._clock() + self._timeout_s, loop.create_future())
        self._runs[fetch.request, fetch.attempt] = run
        task = loop.create_task(self._carry_out(run), name="fetch")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self, request: RequestId, attempt: int) -> None:
        """The request has ended: no need to go on. The fetch ends all the same."""
        run = self._runs.get((request, attempt))
        if run is not None and not run.over.done():
            run.over.set_result(None)

    def gates(self, request: RequestId, attempt: int) -> LayerGates:
        """Those of a fetch that `on_arriving` has heard of, and that has not ended."""
        gates = self._runs[request, attempt].gates
        assert gates is not None
        return gates

    def keys(self, request: RequestId, attempt: int) -> Sequence[BlockKey]:
        """The blocks of a fetch that has not ended."""
        return self._runs[request, attempt].fetch.keys

    async def ended(self, request: RequestId, attempt: int) -> None:
        """Return when `on_end` was called for it, or a law was broken on the way there."""
        run = self._runs.get((request, attempt))
        if run is not None:
            await run.ended.wait()

    async def close(self) -> None:
        """End all of them, and wait until nothing is written any more."""
        for request, attempt in self._runs:
            self.cancel(request, attempt)
        while self._tasks:
            await asyncio.wait(self._tasks)
        for asked in self._asked:
            asked.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)

    # ── one fetch ────────────────────────────────────────────────────────────────────────────

    async def _carry_out(self, run: _Run) -> None:
        began, fetch = self._clock(), run.fetch
        try:
            got = await self._get(run)
            missing = len(fetch.keys) - got.blocks
            if missing:
                self.missed[got.reason] += missing
            del self._runs[fetch.request, fetch.attempt]
            self._on_end(
                FetchEnded(
                    request=fetch.request,
                    attempt=fetch.attempt,
                    good=(True,) * got.blocks + (False,) * missing,
                    problem=got.problem,
                    seconds=self._clock() - began,
                )
            )
        finally:
            run.ended.set()

    async def _get(self, run: _Run) -> _Got:
        session = self._session() or await self._session_that_comes(run)
        if session is None:
            if run.over.done():
                return _Got(0, *self._why_given_up(run))
            return _Got(0, NotFetched.ABSENT, "the KV store is not there")
        try:
            located = await self._located(session, run)
        except PeerError as error:
            return _Got(0, NotFetched.ABSENT, str(error))
        if located is None:
            return _Got(0, *self._why_given_up(run))
        try:
            return await self._copied(session, run, located)
        finally:
            if located.lease is not None:
                session.release(located.lease)

    async def _session_that_comes(self, run: _Run) -> StoreSession | None:
        """The worker may have begun a moment ago: the router knows of no such delay."""
        settling = asyncio.ensure_future(self._settled())
        await self._wait(run, settling)
        settling.cancel()
        await asyncio.gather(settling, return_exceptions=True)
        return self._session()

    async def _located(self, session: StoreSession, run: _Run) -> Located | None:
        """The store's answer; None: it did not come in time. Then it is answered when it comes."""
        fetch = run.fetch
        locate = Locate(
            tenant=fetch.tenant,
            keys=fetch.keys,
            wait_s=LOCATE_SHARE * self._timeout_s,
            position=fetch.position,
            left_s=None if fetch.due is None else fetch.due - self._clock(),
            compute_s=fetch.compute_s,
        )
        asked = session.locate(locate)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        await self._wait(run, asked)
        if asked.done():
            return asked.result()
        asked.add_done_callback(partial(_release, session))
        return None

    async def _copied(self, session: StoreSession, run: _Run, located: Located) -> _Got:
        fetch = run.fetch
        if problem := _objection(fetch, located):
            return _Got(0, NotFetched.WRONG, problem)
        self._note_lossy(fetch.keys[at] for at in located.lossy)
        found = len(located.blocks)
        first = fetch.first_blocks(found)
        pages = [
            PagePull(source, target)
            for at, (block, targets) in enumerate(zip(located.blocks, fetch.targets, strict=False))
            for source, target, begin in zip(block, targets, first, strict=True)
            if at >= begin
        ]
        whole = found == len(fetch.keys)
        copied = PagesCopied((), Counter())
        if pages:
            copied = await self._pages(session, run, pages, whole=whole)
        good = copied.good.index(False) if False in copied.good else len(copied.good)
        blocks = found if good == len(pages) else _whole_blocks(fetch, good)
        if blocks == len(fetch.keys):
            return _Got(blocks)
        if copied.missed:
            return _Got(blocks, min(copied.missed), why_missed(copied.missed))
        if blocks < found:
            return _Got(blocks, *self._why_given_up(run))
        problem = f"the KV store has {blocks} of {len(fetch.keys)} blocks"
        return _Got(blocks, NotFetched.GONE, problem)

    def _note_lossy(self, keys: Iterable[BlockKey]) -> None:
        self.lossy.update(dict.fromkeys(keys))
        while len(self.lossy) > _MOST_LOSSY:
            del self.lossy[next(iter(self.lossy))]

    async def _pages(
        self, session: StoreSession, run: _Run, pages: list[PagePull], *, whole: bool
    ) -> PagesCopied:
        """Wait for the copy as long as it may take, then until it has stopped.

        If it is of the `whole` fetch and takes long, it comes layer by layer.
        """
        layers, copy_s = self._layers, session.copy_s(len(pages))
        if layers is None or not whole or copy_s < LONG_COPY_S:
            if copy_s < SHORT_COPY_S:
                return session.copy_here(pages)
            return await self._ended(run, session.copy(pages, run.stop.is_set))
        gates = run.gates = LayerGates(layers.starts)
        here = self._opener(run, layers, gates)
        try:
            copying = session.copy_parts(pages, layers.parts, run.stop.is_set, here)
            return await self._ended(run, copying)
        finally:
            gates.close()

    def _opener(self, run: _Run, layers: LayerGroups, gates: LayerGates) -> Callable[[int], None]:
        """For the thread that copies: opens gates, and says on the event loop how far it is."""
        loop, clock, began = asyncio.get_running_loop(), self._clock, self._clock()
        fetch, groups = run.fetch, len(layers.starts)

        def here(number: int) -> None:
            gates.open(number)
            group_s = (clock() - began) / number
            arriving = Arriving(fetch.request, fetch.attempt, number, groups, group_s)
            if number < groups:
                loop.call_soon_threadsafe(layers.on_arriving, arriving)

        return here

    async def _ended(self, run: _Run, copying: "Future[PagesCopied]") -> PagesCopied:
        waiting = asyncio.wrap_future(copying)
        await self._wait(run, waiting)
        if not waiting.done():
            run.stop.set()
            if copying.cancel():
                return PagesCopied((), Counter())
            await asyncio.wait({waiting})
        return waiting.result()

    async def _wait(self, run: _Run, what: asyncio.Future) -> None:
        """Until it is done, the request has ended, or the time is over."""
        left_s = max(0.0, run.deadline - self._clock())
        await asyncio.wait({what, run.over}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    def _why_given_up(self, run: _Run) -> tuple[str, str]:
        if run.over.done():
            return NotFetched.ENDED, "the request has ended"
        return NotFetched.LATE, f"the KV store took longer than {self._timeout_s} s"

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)


def _objection(fetch: Fetch, located: Located) -> str:
    """Why this can't be the answer; empty: it can."""
    if len(located.blocks) > len(fetch.keys):
        return f"the KV store found {len(located.blocks)} of {len(fetch.keys)} blocks"
    if any(not 0 <= at < len(located.blocks) for at in located.lossy):
        return "the KV store says of blocks that it has not found that they are lossy"
    if located.blocks and located.lease is None:
        return "the KV store gave no lease"
    for block, targets in zip(located.blocks, fetch.targets, strict=False):
        if len(block) != len(targets):
            return f"the KV store has {len(block)} pages of a block that has {len(targets)}"
    return ""


def _whole_blocks(fetch: Fetch, pages: int) -> int:
    """How many blocks can be gone on from if the first `pages` pages are good, and not all."""
    if fetch.back:
        return 0
    blocks = 0
    for targets in fetch.targets:
        pages -= len(targets)
        if pages < 0:
            break
        blocks += 1
    return blocks


def _release(session: StoreSession, asked: asyncio.Future[Located]) -> None:
    """An answer has come that nobody waits for any more."""
    if asked.cancelled() or asked.exception() is not None:
        return
    lease = asked.result().lease
    if lease is not None:
        session.release(lease)
