"""The driver of `RequestBook`: executes its commands between HTTP handlers and the workers.

    handler ── open(call) ─► book.start ─► Dispatch, Grant, Adopt, … ─► Courier ─► links
    links ─► Fleet ─ events ─► book.heard ─► Deliver ─► text ─► Reply ─► handler
                   └ joins, losses, loads ─► book.observe
    handler ── cancel / timer ── due ─► book ─► Abort, Renew, …

It decides nothing about a request's life: who serves it, what to deliver, when it is over and how
it ended is the book's. Everything runs on one event loop; no method that changes state awaits,
but for those that wait for a worker to be emptied.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from antiphon.core.recorder import recorded
from antiphon.core.requests import BOOK, BOOK_METHODS, Routing, book_of
from antiphon.core.token_runs import each_token
from antiphon.errors import BugError, PeerError
from antiphon.live.worker_link import WorkerLink
from antiphon.text import SequenceText, Tokenizer
from antiphon.types import (
    Abort,
    Admitted,
    Adopt,
    Command,
    Config,
    Deliver,
    DeliverRun,
    Dispatch,
    Drained,
    EndSequence,
    Event,
    FinishReason,
    FleetEvent,
    Grant,
    GrantAnswered,
    JoinRefused,
    Rejected,
    Release,
    Renew,
    Request,
    RequestId,
    Role,
    Seconds,
    Settle,
    Stage,
    TokenGenerated,
    WorkerId,
    WorkerInfo,
)

from .auth import Tenant
from .courier import Courier
from .errors import INTERNAL, unavailable
from .fleet import Fleet
from .intake import Call, Served, request_of
from .law import Law
from .metrics import Metrics
from .ports import Ports
from .reply import Reply

_DEFAULTS = Config()


class State(StrEnum):
    """May new requests come?"""

    READY = "ready"
    NO_WORKER = "no worker"
    """They may, but nobody is there to serve them now."""
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
    """Owns all open requests. Use it within `run`, and give it workers by `join`."""

    def __init__(
        self,
        router: Routing,
        served: Served,
        tokenizer: Tokenizer,
        metrics: Metrics,
        ports: Ports,
        config: Config = _DEFAULTS,
    ) -> None:
        self._served = served
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._ports = ports
        self._clock = ports.clock
        self._book = book_of(config.router, router)
        if ports.log_decision is not None:
            self._book = recorded(BOOK, self._book, BOOK_METHODS, ports.log_decision)
        self.fleet = Fleet(
            config.cluster,
            clock=ports.clock,
            on_events=self._heard,
            on_change=self._changed,
            on_failure=self.fail,
            on_lost=ports.on_lost,
            on_kv_news=ports.heard_kv,
        )
        self._courier = Courier(self.fleet, on_answer=self._answered, on_failure=self.fail)
        self._open: dict[RequestId, _Open] = {}
        self._calls: Counter[Tenant] = Counter()
        self._state = State.READY
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._emptying: dict[WorkerId, list[asyncio.Future[None]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._law = Law(self.fail)
        metrics.watch(self.fleet, self._book, served.model)

    @property
    def state(self) -> State:
        """Whether `open` takes requests, and somebody is there to serve them."""
        if self._state is State.READY and not self.fleet.serves:
            return State.NO_WORKER
        return self._state

    @property
    def open_requests(self) -> int:
        """How many requests are not settled."""
        return len(self._open)

    @property
    def held(self) -> tuple[int, int]:
        """How many requests wait for a worker, and how many with an offer for one that decodes."""
        return self._book.held

    async def run(self) -> None:
        """Keep watch over the workers until cancelled.

        Raises what `fail` was given. Afterwards every open request has failed, and the gateway is
        unhealthy for good; the loss of workers never ends it.
        """
        try:
            if self._failure is not None:
                raise self._failure
            self._watch = asyncio.create_task(self.fleet.run(), name="gateway")
            await self._watch
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            self._stop()

    def _stop(self) -> None:
        self._state = State.UNHEALTHY
        self._courier.close()
        stopped = unavailable("the server has stopped: send the request again")
        for entry in self._open.values():
            entry.reply.fail(stopped if self._failure is None else INTERNAL)
        for id in list(self._open):
            self._give_up(id)
        for waiting in (one for each in self._emptying.values() for one in each):
            waiting.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self, id: RequestId) -> None:
        """A book that has broken a law may break another one here: the first one is the cause."""
        try:
            self._execute(self._book.cancel(id, self._clock(), reason=FinishReason.ERROR))
        except (BugError, LookupError):
            if self._failure is None:
                raise

    def fail(self, error: BaseException) -> None:
        """A law was broken and nothing here can be trusted any more: end `run` with `error`.

        Nothing new is taken from this moment on.
        """
        self._failure = self._failure or error
        self._state = State.UNHEALTHY
        if self._watch is not None:
            self._watch.cancel()

    # ── workers ──────────────────────────────────────────────────────────────────────────────

    def join(self, link: WorkerLink) -> JoinRefused | None:
        """Give this worker requests from now on. Returns why not, if its life is over already."""
        return self.fleet.join(link)

    def empty(self, worker: WorkerId, timeout_s: Seconds) -> asyncio.Future[None]:
        """Give a worker nothing new; the future is done when nothing of ours is left on it.

        What has not ended after `timeout_s` goes on elsewhere.
        """
        emptied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._emptying.setdefault(worker, []).append(emptied)
        self.fleet.drain(worker, True)
        now = self._clock()
        with self._law:
            self._run(self._book.drain(worker, now + timeout_s, now))
        return emptied

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def open(self, call: Call) -> Reply:
        """Start the call's requests, all or none. Their outcome, refusals too, is in the reply.

        Raises `ClientError` if a prompt is too long or empty, `PeerError` if nothing new is taken.
        """
        match self._state:
            case State.DRAINING:
                raise PeerError("the server is shutting down")
            case State.UNHEALTHY:
                raise PeerError("the server has stopped")
            case State.READY | State.NO_WORKER:
                pass
        now = self._clock()
        requests = [
            request_of(call, index, self._served, self._ports.draw_seed())
            for index in range(len(call.prompts))
        ]
        n = call.sampling.n
        reply = Reply({request.id: n * i for i, request in enumerate(requests)}, call.stream)
        for request in requests:
            self._open[request.id] = _Open(request, call, reply, self._tokenizer)
        self._calls[call.tenant] += 1
        self._idle.clear()
        with self._law:
            for request in requests:
                self._ports.heard_request(request)
                self._run(self._book.start(request, now))
        return reply

    def open_calls(self, tenant: Tenant) -> int:
        """How many calls of this tenant are not over."""
        return self._calls[tenant]

    def cancel(self, reply: Reply, message: str = "") -> None:
        """End what is left of a call, at once. No effect on one that is over."""
        now = self._clock()
        with self._law:
            for id in reply.requests:
                self._run(self._book.cancel(id, now, message=message))

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

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    def _heard(self, worker: WorkerInfo, events: Sequence[Event]) -> None:
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
            if type(event) is not TokenGenerated:
                self._metrics.cluster.heard(worker, event)
        self._metrics.tokens(delivered)
        self._arm()

    def _answered(self, worker: WorkerInfo, answer: Admitted | Rejected | GrantAnswered) -> None:
        self._metrics.cluster.heard(worker, answer)
        self._run(self._book.heard(answer, self._clock()))

    def _changed(self, event: FleetEvent) -> None:
        with self._law:
            self._run(self._book.observe(event, self._clock()))

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def _run(self, commands: Sequence[Command]) -> None:
        self._execute(commands)
        self._arm()

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Deliver():
                    self._deliver(command.token, self._clock())
                case DeliverRun(run):
                    any(self._deliver(token, self._clock()) for token in each_token(run))
                case EndSequence():
                    self._end(command)
                case Settle():
                    self._settle(command)
                case Drained(worker):
                    for waiting in self._emptying.pop(worker, []):
                        if not waiting.done():
                            waiting.set_result(None)
                case Dispatch(_, worker, Stage.WHOLE):
                    if link := self.fleet.link(worker):
                        splits = self.fleet.has(Role.PREFILL)
                        self._metrics.cluster.whole(link.info, splits=splits)
                    self._courier.carry(command)
                case Dispatch() | Adopt() | Grant() | Renew() | Release() | Abort():
                    self._courier.carry(command)

    def _deliver(self, token: TokenGenerated, now: Seconds) -> bool:
        """Whether its sequence's text has met a stop string: nothing more of it is wanted."""
        entry = self._open[token.request]
        text = entry.texts[token.sequence]
        if text.last_token_at is not None:
            self._metrics.gap(now - text.last_token_at)
        text.last_token_at = now
        delta, scored = text.push(token)
        entry.reply.text(token.request, token.sequence, delta.text, scored)
        if delta.stopped is None:
            return False
        self._execute(self._book.cancel(token.request, now, token.sequence, FinishReason.STOP))
        return True

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
        self._ports.log_request(settle.record, settle.rejected)
        rejected = settle.rejected
        if rejected is not None and rejected.field is not None:
            named = entry.call.renamed.get(rejected.field, rejected.field)
            rejected = replace(rejected, field=named)
        entry.reply.settle(settle.record, rejected)
        if entry.reply.over:
            self._calls -= Counter((entry.call.tenant,))  # which also forgets who has none left

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def _arm(self) -> None:
        """One timer for whatever is due first; a later time is looked at when that one comes."""
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
        with self._law:
            self._run(self._book.due(self._clock()))
