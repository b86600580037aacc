"""The driver of `RequestBook`: executes its commands between HTTP handlers and a worker.

    handler ── open(call) ─► book.start ─► Dispatch ─► link.add
    worker ─ events ─► book.heard ─► Deliver ─► text ─► Reply ─► handler
    handler ── cancel / timer ── due ─► book ─► Abort ─► link.abort

It decides nothing about a request's life: what to deliver, when a request is over and how it ended
is the book's. Everything runs on one event loop; no method that changes state awaits.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from antiphon.core.recorder import Entry, recorded
from antiphon.core.requests import BOOK, BOOK_METHODS, RequestBook
from antiphon.core.validation import resolve_sampling
from antiphon.errors import ClientError, PeerError
from antiphon.live.worker_link import WorkerLink
from antiphon.text import SequenceText, Tokenizer
from antiphon.types import (
    Abort,
    Command,
    Deliver,
    Dispatch,
    EndSequence,
    Event,
    FinishReason,
    Request,
    RequestId,
    Seconds,
    Settle,
    TokenGenerated,
)

from .auth import Tenant
from .errors import unavailable
from .intake import Call, rename
from .metrics import Metrics
from .reply import Reply

_log = logging.getLogger(__name__)


class State(StrEnum):
    """May new requests come?"""

    READY = "ready"
    DRAINING = "draining"
    UNHEALTHY = "unhealthy"


class _Open:
    """One request that is not settled: where its text goes, and each sequence's text."""

    def __init__(self, request: Request, call: Call, reply: Reply, tokenizer: Tokenizer) -> None:
        self.request = request
        self.call = call
        self.reply = reply
        self.texts = [SequenceText(request, tokenizer) for _ in range(request.sampling.n)]


class Gateway:
    """Owns all open requests of one worker. Use it within `run`."""

    def __init__(
        self,
        link: WorkerLink,
        tokenizer: Tokenizer,
        metrics: Metrics,
        *,
        clock: Callable[[], Seconds],
        draw_seed: Callable[[], int] = lambda: secrets.randbits(63),
        log_decision: Callable[[Entry], None] | None = None,
    ) -> None:
        self._link = link
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._clock = clock
        self._draw_seed = draw_seed
        self._book = RequestBook(link.info.id)
        if log_decision is not None:
            self._book = recorded(BOOK, self._book, BOOK_METHODS, log_decision)
        self._open: dict[RequestId, _Open] = {}
        self._calls: Counter[Tenant] = Counter()
        self._state = State.READY
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._tasks: set[asyncio.Task[object]] = set()
        self._pump: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        metrics.late_events = lambda: sum(self._book.dropped.values())

    @property
    def state(self) -> State:
        """Whether `open` takes requests."""
        return self._state

    async def run(self) -> None:
        """Take in the worker's events until cancelled.

        Returns or raises when the worker is gone, and raises what `fail` was given: then every
        open request has failed and the gateway is unhealthy for good.
        """
        self._pump = asyncio.create_task(self._take_events(), name="gateway")
        try:
            await self._pump
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            self._state = State.UNHEALTHY
            if self._failure is None:
                for entry in self._open.values():
                    entry.reply.fail(unavailable("the worker was lost: send the request again"))
            self._execute(self._book.lost(self._link.info.id, self._clock()))
            if self._timer is not None:
                self._timer.cancel()

    def fail(self, error: BaseException) -> None:
        """A law was broken and nothing here can be trusted any more: end `run` with `error`."""
        self._failure = self._failure or error
        if self._pump is not None:
            self._pump.cancel()

    def open(self, call: Call) -> Reply:
        """Start the call's requests, all or none. Their outcome, refusals too, is in the reply.

        Raises `ClientError` if a prompt is too long or empty, `PeerError` if nothing new is taken.
        """
        match self._state:
            case State.DRAINING:
                raise PeerError("the server is shutting down")
            case State.UNHEALTHY:
                raise PeerError("the worker is gone")
            case State.READY:
                pass
        now = self._clock()
        requests = [self._request(call, index) for index in range(len(call.prompts))]
        n = call.sampling.n
        reply = Reply({request.id: n * i for i, request in enumerate(requests)}, call.stream)
        for request in requests:
            self._open[request.id] = _Open(request, call, reply, self._tokenizer)
        self._calls[call.tenant] += 1
        self._idle.clear()
        for request in requests:
            self._execute(self._book.start(request, now))
        self._arm()
        return reply

    def open_calls(self, tenant: Tenant) -> int:
        """How many calls of this tenant are not over."""
        return self._calls[tenant]

    def cancel(self, reply: Reply, message: str = "") -> None:
        """End what is left of a call, at once. No effect on one that is over."""
        now = self._clock()
        for id in reply.requests:
            self._execute(self._book.cancel(id, now, message=message))

    def close(self, reply: Reply) -> None:
        """The handler is done with this reply: whatever still runs for it is of no use."""
        reply.close()
        if not reply.over:
            self.cancel(reply)

    async def drain(self, timeout_s: Seconds) -> bool:
        """Refuse what is new and wait for what runs; after `timeout_s` cancel the rest.

        Returns whether everything had ended by itself.
        """
        if self._state is State.READY:
            self._state = State.DRAINING
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            for entry in list(self._open.values()):
                self.cancel(entry.reply, "the server is shutting down")
            return False
        return True

    def _request(self, call: Call, index: int) -> Request:
        prompt = call.prompts[index]
        info = self._link.info
        try:
            sampling = resolve_sampling(
                call.sampling,
                prompt_len=len(prompt),
                max_model_len=info.max_model_len,
                default_max_tokens=call.default_max_tokens,
                seed=self._draw_seed(),
            )
        except ClientError as error:
            raise rename(error, call.renamed) from None
        return Request(
            id=RequestId(call.id if len(call.prompts) == 1 else f"{call.id}-{index}"),
            prompt=prompt,
            sampling=sampling,
            eos_token_ids=() if sampling.ignore_eos else info.model.eos_token_ids,
            priority=call.priority,
            deadline=call.arrived_at + call.timeout_s,
            arrived_at=call.arrived_at,
            slo=call.slo,
            tenant_salt=call.tenant.salt,
        )

    # Commands of the book.

    async def _take_events(self) -> None:
        async for events in self._link.events():
            self._heard(events)

    def _heard(self, events: Sequence[Event]) -> None:
        now = self._clock()
        heard = self._book.heard
        delivered = 0
        for event in events:
            for command in heard(event, now):
                if type(command) is Deliver:
                    delivered += 1
                    self._deliver(command.token, now)
                else:
                    self._execute((command,))
        self._metrics.tokens(delivered)

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Dispatch():
                    self._dispatch(command.request)
                case Deliver():
                    self._deliver(command.token, self._clock())
                case Abort():
                    self._abort(command)
                case EndSequence():
                    self._end(command)
                case Settle():
                    self._settle(command)

    def _deliver(self, token: TokenGenerated, now: Seconds) -> None:
        entry = self._open[token.request]
        text = entry.texts[token.sequence]
        if text.last_token_at is not None:
            self._metrics.gap(now - text.last_token_at)
        text.last_token_at = now
        delta, scored = text.push(token)
        entry.reply.text(token.request, token.sequence, delta.text, scored)
        if delta.stopped is not None:
            self._execute(self._book.cancel(token.request, now, token.sequence, FinishReason.STOP))

    def _end(self, end: EndSequence) -> None:
        entry = self._open[end.request]
        rest = entry.texts[end.sequence].finish()
        if rest.text:
            entry.reply.text(end.request, end.sequence, rest.text)
        entry.reply.finish(end.request, end.sequence, end.reason, end.message)

    def _settle(self, settle: Settle) -> None:
        entry = self._open.pop(settle.record.request)
        if not self._open:
            self._idle.set()
        self._metrics.settled(settle.record, settle.rejected)
        rejected = settle.rejected
        if rejected is not None and rejected.field is not None:
            named = entry.call.renamed.get(rejected.field, rejected.field)
            rejected = replace(rejected, field=named)
        entry.reply.settle(settle.record, rejected)
        if entry.reply.over:
            self._calls -= Counter((entry.call.tenant,))  # which also forgets who has none left

    def _dispatch(self, request: Request) -> None:
        self._spawn(self._add(request))

    async def _add(self, request: Request) -> None:
        answer = await self._link.add(request)
        self._execute(self._book.heard(answer, self._clock()))

    def _abort(self, abort: Abort) -> None:
        self._spawn(self._link.abort(abort.request, abort.attempt, abort.sequence))

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[object]) -> None:
        """A link that raises has broken its promise: `run` ends with that error."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    # Deadlines.

    def _arm(self) -> None:
        """One timer for the earliest deadline; it is only ever moved forward in time when due."""
        deadline = self._book.next_deadline()
        if deadline is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(0.0, deadline - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer_at = float("inf")
        self._execute(self._book.due(self._clock()))
        self._arm()
