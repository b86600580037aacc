"""A worker in another process, as its gateway sees it: `WorkerLink` over a joined stream.

    add, abort … ──► frame n ──► stream        answer n ──► the call that waits for it
                                               events   ──► queue ──► events()
                                               KV news  ──► queue ──► kv_news()

What is promised at the edges:

* The answers to calls are paired by number. A call waits `call_timeout_s` at most; an answer that
  comes later is dropped, and a request whose `add` was given up is aborted.
* Events and KV news are not decoded before somebody reads them, and few wait for that (`unread`):
  then the worker waits.
* A worker that does not read gets no new requests (`QUEUE_FULL`), and then loses its stream.
* When the stream is over, calls that wait raise `PeerError` and `events` raises it after what had
  come before; at once if this very process had stood still, for then all of it is stale.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from antiphon.core.said_by_workers import (
    wrong_in_answer,
    wrong_in_batch,
    wrong_in_leave,
    wrong_in_view,
)
from antiphon.core.said_of_kv import WORKERS_TIERS, wrong_in_kv
from antiphon.errors import PeerError
from antiphon.types import (
    Abort,
    Aborted,
    Admitted,
    Adopt,
    Dispatch,
    Event,
    EventBatch,
    GrantTo,
    Hello,
    Incarnation,
    KvReplay,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Leave,
    Offer,
    Rejected,
    RejectReason,
    Release,
    Renew,
    Request,
    RequestId,
    Role,
    RoleChanged,
    Seconds,
    Stage,
    Unknown,
    WorkerInfo,
    WorkerView,
)
from antiphon.wire import (
    Calls,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    MessageTooLongError,
    decode,
    to_durations,
    unpack_events,
)

from .kv_journal import KvNews
from .unread import Unread
from .view_details import with_details

MAX_UNSENT_REQUEST_BYTES = 8 * 2**20
"""With more unsent, only what ends or keeps something is still sent."""
_LEASES_A_MESSAGE = 1000
_EVENTS, _KV_NEWS = range(2)
"""Lanes of what waits to be read."""

_ADMISSION = (Kind.ADMITTED, Kind.REJECTED)
_ABORTION = (Kind.ABORTED, Kind.UNKNOWN)
_GRANTING = (Kind.LEASE_HELD, Kind.LEASE_REFUSED)


class RemoteWorker:
    """Implements `WorkerLink`, `KvSource`. Takes over a stream on which a worker said `hello`.

    `on_over` is called once, when the stream is over. Nothing that the worker says is handed on
    before it was looked at: what can't be ends the stream (`core.said_by_workers`).
    """

    def __init__(
        self,
        stream: FrameStream,
        hello: Hello,
        *,
        clock: Callable[[], Seconds],
        call_timeout_s: Seconds,
        on_first_word: Callable[["RemoteWorker"], None],
        on_over: Callable[[Ending], None],
    ) -> None:
        self._stream = stream
        self._on_first_word: Callable[[RemoteWorker], None] | None = on_first_word
        self._info = hello.info
        self._view = hello.view
        self._clock = clock
        self._on_over = on_over
        self._transport = "unix" if stream.peer_names is None else "tls"
        self.on_leave: Callable[[Seconds], object] = lambda timeout_s: None
        """The worker wants to end, and may take so long for what it has."""
        self._leaves = False
        self._calls = Calls(stream, f"worker {hello.info.id}", timeout_s=call_timeout_s)
        self._unread = Unread(stream, lanes=2)
        stream.on_frame, stream.on_end = self._heard, self._ended

    @property
    def info(self) -> WorkerInfo:
        """See `WorkerLink`."""
        return self._info

    @property
    def heard_at(self) -> Seconds:
        """When the worker was heard last, on this process's clock."""
        return self._stream.heard_at

    @property
    def transport(self) -> str:
        """What carries its stream: unix or tls."""
        return self._transport

    def view(self) -> WorkerView:
        """See `WorkerLink`."""
        return self._view

    def let_leave(self) -> None:
        """Tell a worker that wants to end that it has nothing left."""
        self._tell(Kind.LEFT, None)

    async def close(self, reason: str) -> None:
        """Let what was sent leave, and end the stream: the worker gives up what it has."""
        self._stream.finish(reason)
        await self._stream.wait_closed()

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    async def add(
        self, request: Request, stage: Stage = Stage.WHOLE, fetch: int = 0
    ) -> Admitted | Rejected:
        """See `WorkerLink`."""
        sent = to_durations(request, self._clock())
        return await self._hand_over(
            request, Kind.DISPATCH, Dispatch(sent, self._info.id, stage, fetch)
        )

    async def adopt(self, request: Request, offer: Offer) -> Admitted | Rejected:
        """See `WorkerLink`."""
        sent = to_durations(request, self._clock())
        message = Adopt(request=sent, worker=self._info.id, offer=offer)
        return await self._hand_over(request, Kind.ADOPT, message)

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        """See `WorkerLink`."""
        if not self._stream.alive():
            return Unknown(request=id)
        message = Abort(id, attempt, self._info.id, sequence)
        return await self._calls.call(Kind.ABORT, message, _ABORTION, id)

    async def _hand_over(
        self, request: Request, kind: Kind, message: Dispatch | Adopt
    ) -> Admitted | Rejected:
        if not self._stream.alive():
            return self._rejected(request, RejectReason.DRAINING, "is gone")
        unsent = self._stream.unsent_bytes
        if self._calls.full or unsent > MAX_UNSENT_REQUEST_BYTES:
            return self._rejected(request, RejectReason.QUEUE_FULL, "does not keep up")
        try:
            answer = await self._calls.call(kind, message, _ADMISSION, request.id)
            if problem := wrong_in_answer(answer):
                self._stream.end(f"it answers what can't be: {problem}")
                raise PeerError(f"worker {self._info.id} answers what can't be: {problem}")
            return answer
        except MessageTooLongError as error:
            return self._rejected(request, RejectReason.TOO_LONG, f"can't be told: {error}")
        except (PeerError, asyncio.CancelledError):
            self._tell(Kind.ABORT, Abort(request.id, request.attempt, self._info.id))
            raise

    def _rejected(self, request: Request, reason: RejectReason, what: str) -> Rejected:
        return Rejected(
            request=request.id,
            reason=reason,
            message=f"worker {self._info.id} {what}",
            attempt=request.attempt,
        )

    # ── leases and role ──────────────────────────────────────────────────────────────────────

    async def grant(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        """See `WorkerLink`."""
        if not self._stream.alive():
            return LeaseRefused(lease, LeaseRefusal.GONE)
        message = GrantTo(lease=lease, taker=taker, attempt=attempt)
        return await self._calls.call(Kind.GRANT, message, _GRANTING, lease)

    async def renew(self, leases: Sequence[LeaseId]) -> None:
        """See `WorkerLink`. Nobody answers: a lease that is gone shows at the next grant."""
        for start in range(0, len(leases), _LEASES_A_MESSAGE):
            part = tuple(leases[start : start + _LEASES_A_MESSAGE])
            self._tell(Kind.RENEW, Renew(owner=self._info.id, leases=part))

    async def release(self, lease: LeaseId) -> None:
        """See `WorkerLink`. Nobody answers."""
        self._tell(Kind.RELEASE, Release(owner=self._info.id, lease=lease))

    async def set_role(self, role: Role) -> None:
        """See `WorkerLink`."""
        await self._calls.call(Kind.SET_ROLE, RoleChanged(self._info.id, role), (Kind.DONE,), "")
        self._info = replace(self._info, role=role)

    # ── events ───────────────────────────────────────────────────────────────────────────────

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        """See `WorkerLink`. Ends by `PeerError`, which says why the stream is over."""
        while (frame := await self._unread.next(_EVENTS)) is not None:
            with self._sound():
                batch: EventBatch = decode(frame)
                self._check(batch)
                events = unpack_events(batch)
            yield events
        raise self._gone()

    async def kv_news(self) -> AsyncIterator[KvNews]:
        """See `KvSource`. Ends as `events` does."""
        while (frame := await self._unread.next(_KV_NEWS)) is not None:
            with self._sound():
                said: KvNews = decode(frame)
                if problem := wrong_in_kv(said, WORKERS_TIERS):
                    raise FrameError(f"of its KV it says what can't be: {problem}")
            yield said
        raise self._gone()

    def kv_replay(self, wish: KvReplay) -> None:
        """See `KvSource`."""
        self._tell(Kind.KV_REPLAY, wish)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """What is read here may be wrong: then the stream ends, and what else came is forgotten."""
        try:
            yield
        except FrameError as error:
            self._stream.end(str(error))
            self._unread.forget()
            raise

    def _gone(self) -> PeerError:
        ending = self._stream.ending
        return PeerError(f"worker {self._info.id}: {ending.reason if ending else ''}")

    def _check(self, batch: EventBatch) -> None:
        """Raise `FrameError` for what can't be. A worker offers its own: others will go where its
        offer says."""
        if problem := wrong_in_batch(batch, self._info.model.vocab_size):
            raise FrameError(f"it says what can't be: {problem}")
        me = (self._info.id, self._info.incarnation)
        for offer in batch.offers:
            if (offer.owner, offer.incarnation) != me:
                raise FrameError(f"it offers what is of {offer.owner!r:.80}")
            if offer.at != self._info.at:
                raise FrameError("it offers what is to be had elsewhere than where it is")

    # ── the stream ───────────────────────────────────────────────────────────────────────────

    def _tell(self, kind: Kind, message: object) -> None:
        """Send without waiting for an answer; nothing is to be told to a worker that is gone."""
        if self._stream.alive():
            try:
                self._stream.send(kind, message)
            except PeerError:
                assert self._stream.ending is not None

    def _heard(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.EVENTS:
                self._unread.put(frame, _EVENTS)
            case Kind.KV_EVENTS | Kind.KV_DUMP:
                self._unread.put(frame, _KV_NEWS)
            case Kind.REPORT:
                view: WorkerView = decode(frame)
                if problem := wrong_in_view(view):
                    raise FrameError(f"it reports what can't be: {problem}")
                self._view = with_details(view, self._view)
            case Kind.LEAVE:
                leave: Leave = decode(frame)
                if problem := wrong_in_leave(leave):
                    raise FrameError(f"it wants to leave as nobody can: {problem}")
                if self._leaves:
                    raise FrameError("it wants to leave twice")
                self._leaves = True
                self.on_leave(leave.timeout_s)
            case Kind.HELLO:
                raise FrameError("it said hello twice")
            case _:
                self._calls.answered(frame)
        first, self._on_first_word = self._on_first_word, None
        if first is not None:
            first(self)

    def _ended(self, ending: Ending) -> None:
        if ending.stalled:
            self._unread.forget()
        self._calls.fail(ending.reason)
        self._unread.wake()
        self._on_over(ending)
