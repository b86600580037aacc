"""A load: sessions that begin at their times, whatever the server does.

    arrivals ─► session ─► turn ─► (waits for the turns before it, and its pause) ─► call ─► record

Each call is due at a moment that does not depend on how the client or the server keep up, and its
latencies count from there: a server that stalls shows the stall in each call that came due
meanwhile (no coordinated omission; Tene, "How NOT to measure latency").
"""

import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from antiphon.errors import UsageError
from antiphon.types import CallError, CallRecord, Seconds
from antiphon.workload import TimedSession, number_text

from .client import Client
from .load_guard import LoadGuard
from .pacing import wait_until
from .quotes import needed, quoting
from .record import RecordMaker
from .server import LoadLimits, Server

_OTHER_FILES = 256
"""That a process has open beside its calls."""
_AHEAD_SESSIONS = 10_000
_AHEAD_CHARS = 2**27
"""Sessions and text that are made before the load begins: making them takes time from calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What came of a load, beside the records that `observe` got.

    `calls` ended, `failed` of them with an error. `unfinished` calls of sessions that had begun
    were open, or not due yet, when the load was stopped or its last wait was over: they have no
    record. `started_at` is when the records' times begin, on the client's monotonic clock. `notes`
    say in a sentence each what a reader should know before believing the numbers.
    """

    started_at: Seconds
    calls: int
    failed: int
    unfinished: int
    duration_s: Seconds
    lateness_p99_s: Seconds
    lag_p99_s: Seconds
    client_busy: float
    is_stopped: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _End:
    """How a turn ended, for those that come after it."""

    at_s: Seconds
    text: str | None
    """None: it failed."""


async def run_load(
    server: Server,
    sessions: Iterable[TimedSession] | AsyncIterable[TimedSession],
    *,
    observe: Callable[[CallRecord], None],
    limits: LoadLimits | None = None,
    count_tokens: Callable[[str], int] | None = None,
    stop: asyncio.Event | None = None,
    on_send: Callable[[Seconds], None] = lambda _at_s: None,
) -> LoadResult:
    """Put `sessions`, in order of their times, on `server`; return when the last call has ended.

    `observe` gets the record of each call when it ends, of a call that is not sent as well. Calls
    are numbered in the order of sessions and turns, so a number means the same in every run of the
    same load. The clock of the run starts when the first sessions have been made; `on_send` hears
    its time whenever a call goes out. `count_tokens` counts where the server does not say. `stop`
    ends the load early: what is open is closed, and has no record. A cancellation does the same,
    and is passed on. `probe` the server first.
    """
    limits = limits or LoadLimits()
    _allow_sockets(limits.max_open)
    records = RecordMaker(server.model, observe, count_tokens)
    async with Client(server, limits) as client:
        return await _Load(client, limits, records, on_send).run(sessions, stop or asyncio.Event())


class _Load:
    """One run: each turn is a task that waits for the turns before it."""

    def __init__(
        self,
        client: Client,
        limits: LoadLimits,
        records: RecordMaker,
        on_send: Callable[[Seconds], None],
    ) -> None:
        self._client = client
        self._limits = limits
        self._records = records
        self._on_send = on_send
        self._guard = LoadGuard()
        self._turns: set[asyncio.Task[_End]] = set()
        self._pausing: set[asyncio.Task[_End]] = set()
        self._is_over = False
        self._numbers = self._unfinished = 0
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets what a turn raised: a bug, or what `observe` raised."""

    async def run(
        self,
        sessions: Iterable[TimedSession] | AsyncIterable[TimedSession],
        stop: asyncio.Event,
    ) -> LoadResult:
        """See `run_load`."""
        prepared = _prepared(sessions)
        with _quiet_memory(), self._guard:
            self._records.started_at = time.monotonic()
            await self._first_of(self._play(prepared), stop.wait())
        duration_s = time.monotonic() - self._records.started_at
        return LoadResult(
            started_at=self._records.started_at,
            calls=self._records.calls,
            failed=self._records.failed,
            unfinished=self._unfinished,
            duration_s=duration_s,
            lateness_p99_s=self._guard.lateness_p99_s,
            lag_p99_s=self._guard.lag_p99_s,
            client_busy=self._guard.busy,
            is_stopped=stop.is_set(),
            notes=(*self._guard.notes(), *self._records.notes()),
        )

    async def _first_of(self, *ways: Coroutine[Any, Any, object]) -> None:
        """Return when one of them does; then all calls and turns are over, whatever happened."""
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            done, _ = await asyncio.wait((*tasks, self._broken), return_when="FIRST_COMPLETED")
            for one in (self._broken, *tasks):
                if one in done:
                    one.result()
        finally:
            self._is_over = True
            for task in (*tasks, *self._turns):
                task.cancel()
            await asyncio.wait((*tasks, *self._turns))

    async def _play(self, sessions: AsyncIterator[TimedSession]) -> None:
        last_s = 0.0
        try:
            async for timed in sessions:
                if not timed.at_s >= last_s:
                    raise UsageError(f"a session at {timed.at_s} s comes after one at {last_s} s")
                last_s = timed.at_s
                await wait_until(self._records.started_at + timed.at_s)
                self._begin(timed)
        finally:
            if isinstance(sessions, AsyncGenerator):
                await sessions.aclose()
        await self._drain()

    def _begin(self, timed: TimedSession) -> None:
        ends: list[asyncio.Task[_End]] = []
        for index in range(len(timed.session.turns)):
            task = asyncio.ensure_future(self._turn(timed, index, self._numbers, ends))
            self._numbers += 1
            ends.append(task)
            self._turns.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[_End]) -> None:
        self._turns.discard(task)
        if task.cancelled():
            self._unfinished += 1
        elif (error := task.exception()) is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _drain(self) -> None:
        if self._turns:
            await asyncio.wait(self._turns, timeout=self._limits.drain_s)
        self._is_over = True
        for task in self._pausing:
            task.cancel()
        drain_s = number_text(self._limits.drain_s)
        self._client.give_up(f"open {drain_s} s after the last session began")
        if self._turns:
            await asyncio.wait(self._turns)

    async def _turn(
        self, timed: TimedSession, index: int, number: int, ends: list[asyncio.Task[_End]]
    ) -> _End:
        turn = timed.session.turns[index]
        before = {one: await ends[one] for one in needed(turn, index)}
        ready_s = max((end.at_s for end in before.values()), default=timed.at_s)
        record = partial(self._records.unsent, timed.session, index, number)
        if any(end.text is None for end in before.values()):
            record(ready_s, CallError.ABANDONED, "a call that it follows failed")
            return _End(ready_s, None)
        due_s = ready_s + turn.pause_s
        await self._pause(due_s)
        if self._client.open_calls >= self._limits.max_open:
            why = f"{self._limits.max_open} calls are open: the client's limit (max_open)"
            record(due_s, CallError.UNSENT, why)
            return _End(due_s, None)
        texts = {one: end.text or "" for one, end in before.items()}
        due_at = self._records.started_at + due_s
        sent_at = time.monotonic()
        self._guard.sent(sent_at - due_at)
        self._on_send(sent_at - self._records.started_at)
        history = quoting(turn.history, texts)
        answer = await self._client.send(turn.ask, due_at, history)
        await self._records.ended(timed.session, index, number, answer, history)
        text = answer.choices[0].text if answer.failure is None else None
        return _End(answer.ended_at - self._records.started_at, text)

    async def _pause(self, due_s: Seconds) -> None:
        """Until a turn is due. Ends it if nothing is to be sent any more."""
        if self._is_over:
            raise asyncio.CancelledError
        if due_s <= time.monotonic() - self._records.started_at:
            return
        task = asyncio.current_task()
        assert task is not None
        self._pausing.add(task)
        try:
            await wait_until(self._records.started_at + due_s)
        finally:
            self._pausing.discard(task)


def _prepared(
    sessions: Iterable[TimedSession] | AsyncIterable[TimedSession],
) -> AsyncIterator[TimedSession]:
    """The same sessions. Unless they come one by one, the first of them are made here and now."""
    if isinstance(sessions, AsyncIterable):
        return aiter(sessions)
    rest = iter(sessions)
    ahead: list[TimedSession] = []
    chars = 0
    for timed in rest:
        ahead.append(timed)
        chars += sum(len(turn.ask.text) for turn in timed.session.turns)
        if len(ahead) >= _AHEAD_SESSIONS or chars >= _AHEAD_CHARS:
            break
    return _one_by_one(chain(ahead, rest))


async def _one_by_one(sessions: Iterable[TimedSession]) -> AsyncIterator[TimedSession]:
    for timed in sessions:
        yield timed


def _allow_sockets(count: int) -> None:
    """Raise this process's limit of open files for so many, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@contextlib.contextmanager
def _quiet_memory() -> Iterator[None]:
    """What is there already is not looked through for garbage while calls are timed."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
