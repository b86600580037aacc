"""The worker's end of its stream to the gateway: joins, executes messages, sends what happens.

    join ──► serve: message ──► worker.add, abort, …  ──► answer
      ▲             worker.events(), view() ──► batches, reports
      │             KvJournal ──► what it holds, what came and left
      └── end the life: abort all, drop leases, new incarnation ◄── the stream is over

A stream that is over ends everything that came over it, whatever ended it: the gateway has given
those requests to others, or will. So the worker aborts all it has, takes a new incarnation and
joins anew. Before it acts on a message it makes sure that its stream lives: a worker that was
stopped for too long finds out there, before it looks at what waits in its socket (`wire.stream`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from antiphon.core.reconnect_wait import ReconnectWait
from antiphon.errors import BugError, PeerError
from antiphon.types import (
    AttemptFailed,
    Event,
    Hello,
    KvDump,
    Leave,
    Offer,
    Seconds,
    Welcome,
)
from antiphon.wire import (
    Frame,
    FrameError,
    FrameStream,
    Kind,
    MessageTooLongError,
    QuietLog,
    decode,
    pack_events,
)

from .failure import why
from .join_gateway import Joined, NotYetError, join_gateway
from .kv_journal import KvFeed, KvJournal
from .network import Address, TlsAddress
from .view_details import without_details
from .worker_calls import Answer, WorkerCalls
from .worker_link import WorkerLink

HANDLING_TIMEOUT_S = 30.0
"""A worker that has not answered itself by then is broken: its life ends."""
MAX_HANDLING = 8192
"""More messages than that at once come from no gateway of ours."""
REPORT_EVERY_S = 0.05
"""Steps report at most that often; heartbeats always do."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 1.0
_CHECK = ": is `antiphon serve` running there, and does a firewall let its port through?"

_log = logging.getLogger(__name__)


class WorkerPort:
    """Serves one worker to one gateway for as long as `run` runs.

    `new_life` is called when a life is over and all its requests are aborted: it must end whatever
    else is left, as leases, and from then on `worker.info` must show another incarnation. Only this
    port may call the worker's link and read its events. `on_joined` is called at each welcome.
    `journal` is about the worker's own KV memory; without it the gateway hears nothing of that.
    """

    def __init__(
        self,
        worker: WorkerLink,
        gateway: Address,
        *,
        new_life: Callable[[], Awaitable[None]],
        clock: Callable[[], Seconds],
        on_joined: Callable[[], None] = lambda: None,
        journal: KvJournal | None = None,
    ) -> None:
        self._worker = worker
        self._gateway = gateway
        self._new_life = new_life
        self._on_joined = on_joined
        self._clock = clock
        self._quiet = QuietLog(_log, clock)
        self._stream: FrameStream | None = None
        self._welcome: Welcome | None = None
        self._handling: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None] | None = None
        self._journal = journal
        self._feed: KvFeed | None = None
        self._telling: asyncio.Task[None] | None = None
        self._reported_at = clock()
        self._calls = WorkerCalls(worker, clock)
        self._left = asyncio.Event()

    @property
    def welcome(self) -> Welcome | None:
        """What the gateway said at the last joining."""
        return self._welcome

    @property
    def joined(self) -> bool:
        """Whether a gateway has this worker now."""
        return self._stream is not None and self._stream.ending is None

    async def leave(self, timeout_s: Seconds) -> None:
        """Ask the gateway to give this worker nothing new; return when it has nothing left, or has
        no gateway any more. What it has after `timeout_s` goes on elsewhere."""
        stream = self._stream
        if stream is None or not stream.alive():
            return
        self._left.clear()
        with contextlib.suppress(PeerError):
            stream.send(Kind.LEAVE, Leave(timeout_s))
            await self._left.wait()

    async def run(self) -> None:
        """Join, serve, and join anew, until cancelled or the worker's events end.

        Raises `UsageError` if a gateway refuses this worker for good, else what broke the worker.
        """
        self._broken = asyncio.get_running_loop().create_future()
        pump = asyncio.create_task(self._send_what_happens(), name="worker-port-events")
        lives = asyncio.create_task(self._live_on(), name="worker-port")
        try:
            await asyncio.wait({pump, lives, self._broken}, return_when="FIRST_COMPLETED")
            for over in (self._broken, pump, lives):
                if over.done():
                    over.result()
        finally:
            left = {pump, lives, *self._handling} | ({self._telling} if self._telling else set())
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if self._stream is not None:
                self._stream.finish("the worker is shutting down")
                await self._stream.wait_closed()

    # ── lives ────────────────────────────────────────────────────────────────────────────────

    async def _live_on(self) -> None:
        while True:
            joined = await self._join()
            ending = await asyncio.shield(joined.ended)
            self._quiet.warning("the stream to the gateway is over: %s", ending.reason)
            await self._end_life()

    async def _join(self) -> Joined:
        """Try until a gateway has this worker. A life that said hello in vain says it never again:
        a gateway that was slow may have taken it in, and given it up, meanwhile."""
        waits = ReconnectWait(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        check = _CHECK if isinstance(self._gateway, TlsAddress) else ""
        while True:
            hello = Hello(self._worker.info, self._worker.view())
            try:
                joined = await join_gateway(self._gateway, hello, self._begin, self._clock)
            except NotYetError as error:
                self._quiet.trouble("not joined yet: %s", error)
            except OSError as error:
                self._quiet.trouble("not joined yet: %s%s", why(error), check)
            except PeerError as error:
                self._quiet.trouble("the gateway did not answer the hello: %s", error)
                await self._end_life()
            else:
                self._quiet.recovered()
                return joined
            await asyncio.sleep(waits.after())

    def _begin(self, stream: FrameStream, welcome: Welcome) -> None:
        self._welcome, self._stream = welcome, stream
        stream.on_frame = partial(self._heard, stream)
        stream.beat(welcome.heartbeat_s, welcome.lost_after_s, self._report)
        if self._journal is not None:
            self._feed = self._journal.feed()
            self._telling = asyncio.create_task(self._tell_kv(stream, self._feed))
            self._telling.add_done_callback(self._handled)
        self._on_joined()

    async def _end_life(self) -> None:
        """Nothing of this life may be left when the next begins. Raises `BugError` if it takes
        too long, or changes nothing."""
        self._stream = None
        self._left.set()
        if self._telling is not None:
            self._telling.cancel()
        before = self._worker.info.incarnation
        try:
            async with asyncio.timeout(HANDLING_TIMEOUT_S):
                await self._end_all()
                await self._new_life()
        except TimeoutError:
            raise BugError("the worker did not end its old life in time") from None
        if self._worker.info.incarnation == before:
            raise BugError("a worker's new life has the incarnation of the old one")

    async def _end_all(self) -> None:
        if self._handling:
            await asyncio.wait(self._handling)
        await self._calls.end_life()

    # ── messages ─────────────────────────────────────────────────────────────────────────────

    def _heard(self, stream: FrameStream, frame: Frame) -> None:
        """Begin to execute one message; what begins first takes effect first."""
        if frame.kind == Kind.HEARTBEAT:
            return
        if frame.kind == Kind.LEFT:
            self._left.set()
            return
        if frame.kind == Kind.KV_REPLAY and self._feed is not None:
            self._feed.kv_replay(decode(frame))
            return
        if len(self._handling) >= MAX_HANDLING:
            raise FrameError(f"more than {MAX_HANDLING} messages at once")
        answer = self._calls.answer(frame)
        task = asyncio.create_task(self._handle(stream, frame.number, answer))
        self._handling.add(task)
        task.add_done_callback(self._handled)

    async def _handle(
        self,
        stream: FrameStream,
        number: int,
        work: Callable[[], Awaitable[Answer]],
    ) -> None:
        if not stream.alive():
            return
        try:
            async with asyncio.timeout(HANDLING_TIMEOUT_S):
                kind, answer = await work()
            if number:
                stream.send(kind, answer, number)
                await stream.room()
        except TimeoutError:
            stream.end(f"the worker did not do within {HANDLING_TIMEOUT_S} s what it was told")
        except PeerError as error:
            if stream.ending is None:
                self._quiet.warning("a message goes unanswered: %s", error)

    def _handled(self, task: asyncio.Task[None]) -> None:
        """A law was broken while a message was executed, or said: `run` must raise it."""
        self._handling.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    async def _send_what_happens(self) -> None:
        """Pass on the events of this life. While the gateway does not read, neither is read here:
        the worker's outbox fills, and it waits. What has no stream goes with its life."""
        async for events in self._worker.events():
            own = self._calls.life.own(events)
            stream = self._stream
            if not own or stream is None:
                continue
            try:
                await self._send(stream, own)
                if self._clock() - self._reported_at >= REPORT_EVERY_S:
                    stream.send(*self._report(whole=False))
            except PeerError:
                if stream.ending is None:
                    raise

    async def _tell_kv(self, stream: FrameStream, feed: KvFeed) -> None:
        """Say what the worker holds, and what changes, for as long as the stream lives. While the
        gateway does not read, changes wait in the journal."""
        async for news in feed.kv_news():
            kind = Kind.KV_DUMP if isinstance(news, KvDump) else Kind.KV_EVENTS
            try:
                await stream.room()
                stream.send(kind, news)
            except PeerError:
                if stream.ending is None:
                    raise
                return

    async def _send(self, stream: FrameStream, events: Sequence[Event]) -> None:
        """One batch, or halves of it if it is too long. Raises `PeerError`."""
        await stream.room()
        try:
            stream.send(Kind.EVENTS, pack_events(events))
        except MessageTooLongError as error:
            half = len(events) // 2
            if half:
                await self._send(stream, events[:half])
                await self._send(stream, events[half:])
            else:
                await self._send(stream, await self._given_up(events[0], str(error)))

    async def _given_up(self, event: Event, why: str) -> Sequence[Event]:
        """What is said instead of an offer that no message can hold."""
        if not isinstance(event, Offer):
            raise BugError(f"an event of kind {type(event).__name__} can't be told: {why}")
        await self._worker.release(event.lease)
        return [
            AttemptFailed(
                request=event.request,
                attempt=event.attempt,
                message=f"the offer can't be told: {why}",
            )
        ]

    def _report(self, *, whole: bool = True) -> Answer:
        """Without what nothing is decided by if not `whole`: experts' many counts, links."""
        self._reported_at = self._clock()
        view = self._worker.view()
        return Kind.REPORT, view if whole else without_details(view)
