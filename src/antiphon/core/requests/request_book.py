"""The gateway's book of open requests: who serves them, what is delivered, how each one ends.

    start ──► held ◄────────────┐ refused, lost, moved: the next attempt
                │ a worker      │
                ▼               │
              runs ── Offer ──► held ──► granted ──► adopted ── Pulled ──► runs
                │ all sequences ended, cancel, deadline, nobody can serve it, a broken promise
                └──► Settle, the last command about it

Laws, whatever workers send and whenever they die:

* each (sequence, index) is delivered at most once, and in order, over all attempts;
* a sequence that is taken ends by exactly one `EndSequence`, after its last token;
* a request ends by exactly one `Settle`, after its last `EndSequence`; nothing follows it;
* an offer is renewed until it is pulled, its owner is lost, or it is released: one of these comes;
* only workers that have joined and are not lost get commands;
* memory follows the number of open requests: settled ones are forgotten at once.

A driver executes commands in the order in which it gets them. In particular it starts `add` for a
`Dispatch` before `abort` for a later `Abort`: that is why a request can be settled while the
worker's answer is still on its way.
"""

from collections.abc import Mapping, Sequence

from antiphon.errors import BugError
from antiphon.types import (
    Admitted,
    AttemptFailed,
    Command,
    Deliver,
    DeliverRun,
    Drained,
    Event,
    Fetched,
    FinishReason,
    FleetEvent,
    GrantAnswered,
    Health,
    HealthChanged,
    Offer,
    Preempted,
    Pulled,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Seconds,
    SequenceEnded,
    Started,
    TokenGenerated,
    TokensGenerated,
    WorkerId,
    WorkerJoined,
)

from .attempts import Attempts
from .facts import DropReason, Fact
from .held_requests import FairShares
from .open_request import OpenRequest
from .open_requests import OpenRequests
from .parts import STANDARD_PARTS, Parts
from .routing import Routing

STANDARD_SHARES = FairShares()
BOOK = "book"
"""The book's name in a record of decisions."""
BOOK_METHODS = ("start", "heard", "cancel", "observe", "drain", "due")
"""The methods of `RequestBook` whose calls make up its record."""


class RequestBook:
    """Decides what a gateway does for its requests, on a fleet of workers that come and go."""

    def __init__(
        self,
        router: Routing,
        *,
        max_held: int = 4096,
        retry_s: Seconds = 0.1,
        shares: FairShares = STANDARD_SHARES,
        parts: Parts = STANDARD_PARTS,
    ) -> None:
        """At most `max_held` requests that have not begun wait for a worker, in turn by `shares`.

        When every worker had no room for a request that has begun, it waits `retry_s` at first,
        then twice as long each time.
        """
        self._why_unusable = parts.why_unusable
        self._dispatcher = parts.dispatcher(router, parts.handovers())
        self._requests = OpenRequests(self._dispatcher, parts.open_request, shares)
        self._attempts = Attempts(self._requests, self._dispatcher, retry_s)
        self._max_held = max_held
        self._dropped = dict.fromkeys(DropReason, 0)

    def __len__(self) -> int:
        """How many requests are not settled."""
        return len(self._requests)

    @property
    def dropped(self) -> Mapping[DropReason, int]:
        """How many facts were dropped since the start, by reason. A copy."""
        return dict(self._dropped)

    @property
    def held(self) -> tuple[int, int]:
        """How many requests wait for a worker, and how many with an offer for one that decodes."""
        return len(self._requests.for_route), len(self._requests.for_decode)

    @property
    def offers(self) -> int:
        """How many offers are renewed."""
        return len(self._dispatcher.handovers)

    def next_deadline(self) -> Seconds | None:
        """When `due` must be called next, at the latest. None: there is nothing to wait for."""
        earliest = self._requests.deadlines.next()
        for at in (
            self._requests.for_decode.wake_at,
            self._requests.for_route.wake_at,
            self._dispatcher.handovers.next(),
            self._dispatcher.workers.next_drain(),
        ):
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    # ── what a driver tells ──────────────────────────────────────────────────────────────────

    def start(self, request: Request, now: Seconds) -> Sequence[Command]:
        """Take a request into the book. Its id must not be open (`BugError`): gateways make ids."""
        if self._requests.get(request.id) is not None:
            raise BugError(f"request {request.id} is already in the book")
        if len(request.resumed) > request.sampling.n:
            raise BugError(f"request {request.id} resumes more sequences than it has")
        if request.done:
            raise BugError(f"request {request.id}: which sequences are done is the book's to say")
        entry = self._requests.add(request, now)
        if request.deadline is not None and request.deadline <= now:
            message = "the deadline had passed before the request could be taken"
            late = Rejected(request=request.id, reason=RejectReason.DEADLINE, message=message)
            return tuple(self._requests.refuse(entry, late, now))
        commands = self._attempts.seek(entry, now)
        if request.id in self._requests.for_route:
            commands += self._make_room(entry, now)
        return self._rounded(commands, now)

    def _make_room(self, entry: OpenRequest, now: Seconds) -> Sequence[Command]:
        """One more waits. If that is too many, one of whoever has most that wait is refused."""
        queue = self._requests.for_route
        if len(queue) <= self._max_held:
            return ()
        surplus = self._requests.get(queue.surplus() or entry.id) or entry
        full = Rejected(
            request=surplus.id,
            reason=RejectReason.QUEUE_FULL,
            message=f"{self._max_held} requests wait for a worker already: come back later",
            attempt=surplus.request.attempt,
        )
        return self._requests.refuse(surplus, full, now)

    def heard(
        self, fact: Event | Admitted | Rejected | GrantAnswered, now: Seconds
    ) -> Sequence[Command]:
        """Take in what a worker says. What is late, foreign or repeated is dropped and counted.

        A worker that skips a token, or ends a sequence without its last one, has lost some: the
        next attempt begins after what was delivered. One that runs past `max_tokens`, or offers
        something else than it was asked for, is not to be trusted: the request fails.
        """
        entry = self._requests.get(fact.request)
        if entry is None:
            return self._drop(fact, DropReason.UNKNOWN)
        if reason := self._why_unusable(entry, fact):
            return self._drop(fact, reason)
        if isinstance(fact, TokenGenerated | TokensGenerated):
            return self._token(entry, fact, now)
        return self._rounded(self._use(entry, fact, now), now)

    def cancel(
        self,
        id: RequestId,
        now: Seconds,
        sequence: int | None = None,
        reason: FinishReason = FinishReason.ABORTED,
        message: str = "",
    ) -> Sequence[Command]:
        """End one sequence (a stop string came up: `reason=STOP`) or the whole request, at once.

        No commands if it has ended already: cancels race with endings. A sequence that the
        request never had raises `BugError`.
        """
        entry = self._requests.get(id)
        if entry is None:
            return ()
        if sequence is None:
            return self._rounded(self._requests.abort(entry, reason, message, now), now)
        if not entry.has(sequence):
            raise BugError(f"request {id} has no sequence {sequence}")
        if not entry.is_open(sequence):
            return ()
        stop = self._dispatcher.stop(entry, sequence)
        end = entry.end(sequence, reason, message)
        return self._rounded([*stop, end, *self._requests.settle_if_over(entry, now)], now)

    def observe(self, event: FleetEvent, now: Seconds) -> Sequence[Command]:
        """The fleet has changed. What ran on a lost worker goes on elsewhere, if it can."""
        commands: list[Command] = []
        match event:
            case HealthChanged(worker, Health.LOST):
                commands += self._attempts.lose(worker, now)
            case WorkerJoined(info) if self._dispatcher.workers.replaces(info):
                commands += self._attempts.lose(info.id, now)
                self._dispatcher.observe(event, now)
            case _:
                if not self._dispatcher.observe(event, now):
                    return ()
        self._requests.stirred = True
        return self._rounded(commands, now)

    def drain(self, worker: WorkerId, until: Seconds, now: Seconds) -> Sequence[Command]:
        """Give a worker nothing new, and at `until` move what is left. `Drained` says it is empty.

        It stays without work until it is seen as JOINED again, or joins anew.
        """
        if worker not in self._dispatcher.workers:
            return (Drained(worker),)
        self._dispatcher.drain(worker, until, now)
        self._requests.stirred = True
        return self._rounded(self._attempts.vacate_overdue(now), now)

    def due(self, now: Seconds) -> Sequence[Command]:
        """Do what has its time at or before `now`, earliest first within each kind."""
        commands: list[Command] = []
        for id in self._requests.deadlines.pop_due(now):
            if (entry := self._requests.get(id)) is not None:
                message = "the request's deadline has passed"
                commands += self._requests.abort(entry, FinishReason.DEADLINE, message, now)
        commands += self._attempts.vacate_overdue(now)
        commands += self._dispatcher.handovers.due(now)
        for queue in (self._requests.for_decode, self._requests.for_route):
            self._requests.stirred |= queue.wake_at is not None and queue.wake_at <= now
        return self._rounded(commands, now)

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    def _token(
        self, entry: OpenRequest, fact: TokenGenerated | TokensGenerated, now: Seconds
    ) -> Sequence[Command]:
        expected = entry.next_index(fact.sequence)
        limit = entry.request.sampling.max_tokens
        if fact.index > expected:
            return self._rounded(self._attempts.broken(entry, now), now)
        tokens = (fact.token,) if isinstance(fact, TokenGenerated) else fact.tokens
        if limit is not None and fact.index + len(tokens) > limit:
            problem = f"the worker went on after max_tokens ({limit})"
            return self._rounded(self._requests.abort(entry, FinishReason.ERROR, problem, now), now)
        entry.attempt.known = True
        computed = not entry.attempt.first_token
        if computed:
            entry.attempt.reached("first_token", now)
            self._dispatcher.token(entry, now)
        entry.accept_tokens(fact.sequence, tokens, now)
        deliver = Deliver(fact) if isinstance(fact, TokenGenerated) else DeliverRun(fact)
        if computed and len(self._requests.for_route):  # its worker may take another prompt now
            self._requests.stirred = True
            return self._rounded([deliver], now)
        return (deliver,)

    def _use(self, entry: OpenRequest, fact: Fact, now: Seconds) -> list[Command]:
        match fact:
            case Rejected():
                return self._attempts.rejected(entry, fact, now)
            case GrantAnswered():
                return self._attempts.granted(entry, fact, now)
            case Admitted():
                entry.refused_by.clear()
                entry.refusals = 0
            case Offer():
                return self._attempts.offered(entry, fact, now)
            case SequenceEnded() if self._dispatcher.cuts_short(entry, fact):
                return self._attempts.broken(entry, now)
            case SequenceEnded():
                end = entry.end(fact.sequence, fact.reason, fact.message)
                entry.attempt.known = True
                return [end, *self._requests.settle_if_over(entry, now)]
            case AttemptFailed():
                return self._attempts.failed(entry, now)
            case Started():
                entry.start(fact, now)
            case Preempted():
                entry.preemptions += 1
            case Pulled() | Fetched():
                self._dispatcher.arrived(entry, fact, now)
                self._requests.stirred |= isinstance(fact, Pulled)
            case TokenGenerated() | TokensGenerated():
                raise BugError("tokens have a way of their own")
        entry.attempt.known = True
        return []

    def _drop(self, fact: Fact, reason: DropReason) -> Sequence[Command]:
        """An offer that is of no use must not wait for its time to live."""
        self._dropped[reason] += 1
        return tuple(self._dispatcher.release(fact)) if isinstance(fact, Offer) else ()

    def _rounded(self, commands: list[Command], now: Seconds) -> Sequence[Command]:
        """What follows from commands that were decided: a place for who waits, an empty worker."""
        if self._requests.stirred:
            commands += self._attempts.ask_all(now)
            self._requests.stirred = False
        return (*commands, *self._attempts.drained())
