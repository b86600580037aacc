"""A worker's stream to the KV store: see `types.kv_store`.

    connect ──► StoreHello, and on it the descriptor of the own memory
            ◄── StoreWelcome, and on it the descriptor of the store's; or StoreRefused
    map it  ──► a session: Put, Locate ──► Located, Release

The store may come later than the worker, go, come again, stand still, or refuse. None of it is a
worker's trouble: without a session nothing is asked, and it tries again for as long as it lives.
Who needs the store while an attempt is under way can wait for its end: see `settled`.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from antiphon.core.joining import same_pages
from antiphon.core.reconnect_wait import ReconnectWait
from antiphon.errors import PeerError
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import Seconds, StoreHello, StoreRefused, StoreWelcome
from antiphon.wire import (
    FROM_STORE,
    Calls,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    QuietLog,
    decode,
    encode,
    owned_by_loop,
)

from .descriptors import first_frame, send_all_at_once
from .store_session import StoreSession
from .store_trouble import why_no_store

HELLO_TIMEOUT_S: Seconds = 60.0
"""The store maps the worker's memory before it answers: 0.1 s a GiB."""
ANSWER_TIMEOUT_S: Seconds = 30.0
"""Whoever asks waits less; an answer that comes later still has to be answered for."""
SETTLING_S: Seconds = 2.0
"""So long others wait for an attempt that has no end; memory is mapped within it up to 20 GiB."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 1.0
_ANSWERS = {int(kind): FROM_STORE[kind] for kind in (Kind.STORE_WELCOME, Kind.STORE_REFUSED)}
_RECEIVES = {int(kind): FROM_STORE[kind] for kind in (Kind.HEARTBEAT, Kind.LOCATED)}

_log = logging.getLogger(__name__)


class StoreState(StrEnum):
    """What a worker has of the store."""

    ABSENT = "absent"
    """Nobody answers, or nobody yet."""
    REFUSED = "refused"
    CONNECTED = "connected"


class StoreClient:
    """Keeps a session with the store at `path` from `start` to `close`.

    `hello` says who the worker is now; `region` is its memory. `threads` has one thread, which
    outlasts `close`: it maps, copies and unmaps, one after the other.
    """

    def __init__(
        self,
        path: Path,
        hello: Callable[[], StoreHello],
        region: OwnedRegion,
        threads: Executor,
        *,
        clock: Callable[[], Seconds],
        heartbeat_s: Seconds,
        lost_after_s: Seconds,
    ) -> None:
        self._path = path
        self._hello = hello
        self._region = region
        self._threads = threads
        self._clock = clock
        self._beat = heartbeat_s, lost_after_s
        self._quiet = QuietLog(_log, clock)
        self._stream: FrameStream | None = None
        self._session: StoreSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._state = StoreState.ABSENT
        self.problem = "nobody was asked yet"
        """Why there is no session, as long as there is none."""
        self._settled = asyncio.Event()
        self._settled.set()
        self._settled_by: Seconds = 0.0
        self._began: list[Callable[[], None]] = []
        self._renewed = False
        """Whether a new life has begun since the last hello."""

    @property
    def state(self) -> StoreState:
        """Whether there is a session, and if not, whose decision that is."""
        return StoreState.CONNECTED if self.session() is not None else self._state

    def session(self) -> StoreSession | None:
        """The present one; None: there is nobody to ask now."""
        session = self._session
        return session if session is not None and session.alive else None

    def start(self) -> None:
        """Begin to look for the store. Needs a running event loop."""
        self._begin_settling()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="store-client")
        self._task.add_done_callback(_raise)

    def on_session(self, began: Callable[[], None]) -> None:
        """Have `began` called at the begin of each session, before anybody else can use it."""
        self._began.append(began)

    async def settled(self) -> None:
        """Return when no attempt is under way whose end is worth waiting for.

        An attempt begins with `start`, with a new life, and with each hello; it ends with a session
        or a problem, and within `SETTLING_S` for whoever waits. A store that was away or refused a
        moment ago is not waited for.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._settled_by - self._clock())):
                await self._settled.wait()

    async def close(self) -> None:
        """Leave the store; its memory goes when the thread has come to it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._settled.set()

    def new_life(self) -> None:
        """The worker has another incarnation now: the store has to be told, by another stream."""
        self._renewed = True
        if self.session() is not None:
            self._begin_settling()
        if self._stream is not None:
            self._stream.end("the worker has begun a new life")

    async def _run(self) -> None:
        waits = ReconnectWait(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            since, self._renewed = self._clock(), False
            self._begin_settling()
            try:
                await self._use()
            except _RefusedError as error:
                self._without(StoreState.REFUSED, str(error), warn=True)
            except TimeoutError:
                problem = f"it said no welcome within {HELLO_TIMEOUT_S} s"
                self._without(StoreState.ABSENT, problem, warn=True)
            except (OSError, PeerError) as error:
                problem = why_no_store(error)
                self._without(StoreState.ABSENT, problem, warn=waits.is_longest)
            if not self._renewed:
                self._settled.set()
            came = self._renewed or self._clock() - since > _LONGEST_WAIT_S
            await asyncio.sleep(waits.after(came=came))

    def _begin_settling(self) -> None:
        if self._settled.is_set():
            self._settled.clear()
            self._settled_by = self._clock() + SETTLING_S

    def _without(self, state: StoreState, problem: str, *, warn: bool) -> None:
        """There is no session. A store that starts is there before the first warning."""
        self._state, self.problem = state, problem
        if warn:
            self._quiet.trouble("the KV store at %s can't be used: %s", self._path, problem)

    async def _use(self) -> None:
        """Connect, and have a session until the stream is over. Raises whatever prevents it."""
        over: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        hello, session = self._hello(), None
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                stream, calls, descriptor = await self._connected(hello, over)
            self._stream = stream
            memory = await self._mapped(descriptor)
            session = StoreSession(stream, calls, memory, self._threads)
            if self._hello() != hello:
                raise PeerError("the worker has begun a new life meanwhile")
            self._session = session
            self._quiet.recovered()
            self._settled.set()
            for began in self._began:
                began()
            ending = await over
        finally:
            if self._stream is not None:
                self._stream.end("the worker is shutting down")
            self._stream = self._session = None
            if session is not None:
                session.unmap()
        raise PeerError(ending.reason)

    async def _connected(
        self, hello: StoreHello, over: asyncio.Future[Ending]
    ) -> tuple[FrameStream, Calls, int]:
        """The stream, its calls, and a descriptor of the store's memory, which is the caller's."""
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        descriptors: list[int] = []
        try:
            await loop.sock_connect(connection, os.fspath(self._path))
            first = encode(Kind.STORE_HELLO, hello)
            send_all_at_once(connection, first, [self._region.fd])
            self._check(await first_frame(connection, _ANSWERS, descriptors), descriptors)
            stream = FrameStream(_RECEIVES, clock=self._clock)
            calls = Calls(stream, "the KV store", timeout_s=ANSWER_TIMEOUT_S)

            def ended(ending: Ending) -> None:
                calls.fail(ending.reason)
                if not over.done():
                    over.set_result(ending)

            stream.on_frame, stream.on_end = calls.answered, ended
            with owned_by_loop(connection):
                await loop.create_unix_connection(lambda: stream, sock=connection)
            stream.beat(*self._beat, lambda: (Kind.HEARTBEAT, None))
            return stream, calls, descriptors.pop()
        except BaseException:
            connection.close()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _check(self, frame: Frame | None, descriptors: Sequence[int]) -> None:
        """Whether this is a welcome. Raises `PeerError`."""
        if frame is None:
            raise PeerError("it went away before it answered the hello")
        match decode(frame):
            case StoreRefused(_, message):
                raise _RefusedError(message)
            case StoreWelcome(kv=kv) if same_pages(kv, self._region.shape):
                if len(descriptors) != 1:
                    raise FrameError(f"it sent {len(descriptors)} descriptors")
            case StoreWelcome(kv=kv):
                raise FrameError(f"its pages are {kv}")
            case _:
                raise FrameError("it did not answer the hello first")

    async def _mapped(self, descriptor: int) -> MappedRegion:
        """The store's memory, mapped on the thread. The descriptor is closed, come what may."""
        mapping = self._threads.submit(_map, descriptor, self._region)
        try:
            return await asyncio.shield(asyncio.wrap_future(mapping))
        except asyncio.CancelledError:
            mapping.add_done_callback(_unmap)
            raise


class _RefusedError(PeerError):
    """The store says that it does not serve this worker."""


def _raise(task: asyncio.Task[None]) -> None:
    """A law that was broken reaches the loop's guard: nobody awaits the task."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def _map(descriptor: int, region: OwnedRegion) -> MappedRegion:
    try:
        return MappedRegion(descriptor, region)
    finally:
        os.close(descriptor)


def _unmap(mapping: "Future[MappedRegion]") -> None:
    """Nobody waits for it any more."""
    if mapping.exception() is None:
        mapping.result().close()
