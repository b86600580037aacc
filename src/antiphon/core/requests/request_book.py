"""The gateway's book of open requests: what is delivered, and how each request ends.

    start ──► waits for the worker's answer ──► runs ──► settled
                 │ Rejected, cancel, deadline,    │ all sequences ended, cancel, deadline,
                 │ worker lost                    │ worker lost, worker broke its promise
                 └────────────────────────────────┴──► Settle, the last command about it

Laws, whatever a worker sends:

* each (sequence, index) is delivered at most once, and in order;
* a sequence that is taken ends by exactly one `EndSequence`, after its last token;
* a request ends by exactly one `Settle`, after its last `EndSequence`; nothing follows it;
* memory follows the number of open requests: settled ones are forgotten at once.

A driver executes commands in the order in which it gets them. In particular it starts `add` for a
`Dispatch` before `abort` for a later `Abort`: that is why a request can be settled while the
worker's answer is still on its way.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from antiphon.errors import BugError
from antiphon.types import (
    Abort,
    Admitted,
    Command,
    Deliver,
    Dispatch,
    Event,
    FinishReason,
    Preempted,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Seconds,
    SequenceEnded,
    Settle,
    Started,
    TokenGenerated,
    WorkerId,
)

from .deadlines import Deadlines
from .open_request import OpenRequest


class DropReason(StrEnum):
    """Why a fact was not used. All but LATE and UNKNOWN speak of a faulty peer."""

    UNKNOWN = "unknown"
    """Of a request that is settled, or was never here: usual after a cancel."""
    FOREIGN = "foreign"
    """Of another attempt, or of a sequence that the request does not have."""
    LATE = "late"
    """Of a sequence that has ended: usual after a stop string."""
    DUPLICATE = "duplicate"
    CONTRADICTION = "contradiction"
    """A refusal of a request that the worker had already taken."""


class RequestBook:
    """Decides what a gateway does for its requests. Here with one worker and no failover."""

    def __init__(self, worker: WorkerId) -> None:
        self._worker = worker
        self._open: dict[RequestId, OpenRequest] = {}
        self._deadlines = Deadlines()
        self._dropped = dict.fromkeys(DropReason, 0)

    def __len__(self) -> int:
        """How many requests are not settled."""
        return len(self._open)

    @property
    def dropped(self) -> Mapping[DropReason, int]:
        """How many facts were dropped since the start, by reason. A copy."""
        return dict(self._dropped)

    def next_deadline(self) -> Seconds | None:
        """When `due` must be called next, at the latest. None: no open request has a deadline."""
        return self._deadlines.next()

    def start(self, request: Request, now: Seconds) -> Sequence[Command]:
        """Take a request into the book. Its id must not be open (`BugError`): gateways make ids."""
        if request.id in self._open:
            raise BugError(f"request {request.id} is already in the book")
        if len(request.resumed) > request.sampling.n:
            raise BugError(f"request {request.id} resumes more sequences than it has")
        entry = OpenRequest(request, now)
        if request.deadline is not None and request.deadline <= now:
            late = Rejected(
                request=request.id,
                reason=RejectReason.DEADLINE,
                message="the deadline had passed before the request could be taken",
            )
            return (Settle(entry.refused_record(late.message, now), late),)
        self._open[request.id] = entry
        if request.deadline is not None:
            self._deadlines.add(request.id, request.deadline)
        return (Dispatch(request),)

    def heard(self, fact: Event | Admitted | Rejected, now: Seconds) -> Sequence[Command]:
        """Take in what the worker says. What is late, foreign or repeated is dropped and counted.

        A worker that skips a token or runs past `max_tokens` has broken its promise, and what
        it sends can't be made whole: its request fails.
        """
        entry = self._open.get(fact.request)
        if entry is None:
            return self._drop(DropReason.UNKNOWN)
        if reason := _why_unusable(entry, fact):
            return self._drop(reason)
        if isinstance(fact, Rejected):
            self._forget(entry)
            return (Settle(entry.refused_record(fact.message, now), fact),)
        entry.known_to_worker = True
        match fact:
            case TokenGenerated():
                return self._token(entry, fact, now)
            case SequenceEnded():
                end = entry.end(fact.sequence, fact.reason, fact.message)
                return (end, *self._settle_if_over(entry, now))
            case Started():
                entry.start(fact.cached_tokens, fact.queued_s, now)
            case Preempted():
                entry.preemptions += 1
            case Admitted():
                pass
        return ()

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
        entry = self._open.get(id)
        if entry is None:
            return ()
        if sequence is None:
            return self._abort(entry, reason, message, now)
        if not entry.has(sequence):
            raise BugError(f"request {id} has no sequence {sequence}")
        if not entry.is_open(sequence):
            return ()
        abort = Abort(id, entry.request.attempt, sequence)
        end = entry.end(sequence, reason, message)
        return (abort, end, *self._settle_if_over(entry, now))

    def lost(self, worker: WorkerId, now: Seconds) -> Sequence[Command]:
        """The worker is gone: its requests fail, in the order in which they came."""
        if worker != self._worker:
            return ()
        message = f"worker {worker} was lost"
        commands: list[Command] = []
        for entry in list(self._open.values()):
            commands += self._end_all(entry, FinishReason.ERROR, message, now)
        return tuple(commands)

    def due(self, now: Seconds) -> Sequence[Command]:
        """End every request whose deadline is at or before `now`, earliest first."""
        commands: list[Command] = []
        for request in self._deadlines.pop_due(now):
            message = "the request's deadline has passed"
            commands += self._abort(self._open[request], FinishReason.DEADLINE, message, now)
        return tuple(commands)

    def _token(self, entry: OpenRequest, fact: TokenGenerated, now: Seconds) -> Sequence[Command]:
        expected = entry.next_index(fact.sequence)
        limit = entry.request.sampling.max_tokens
        if fact.index > expected:
            problem = f"the worker sent token {fact.index} where {expected} was due"
        elif limit is not None and fact.index >= limit:
            problem = f"the worker went on after max_tokens ({limit})"
        else:
            entry.accept_token(fact.sequence, now)
            return (Deliver(fact),)
        return self._abort(entry, FinishReason.ERROR, problem, now)

    def _abort(
        self, entry: OpenRequest, reason: FinishReason, message: str, now: Seconds
    ) -> Sequence[Command]:
        abort = Abort(entry.request.id, entry.request.attempt)
        return (abort, *self._end_all(entry, reason, message, now))

    def _end_all(
        self, entry: OpenRequest, reason: FinishReason, message: str, now: Seconds
    ) -> Sequence[Command]:
        ends = [entry.end(sequence, reason, message) for sequence in entry.open_sequences()]
        return (*ends, *self._settle_if_over(entry, now))

    def _settle_if_over(self, entry: OpenRequest, now: Seconds) -> Sequence[Command]:
        if entry.open_sequences():
            return ()
        self._forget(entry)
        return (Settle(entry.record(now)),)

    def _forget(self, entry: OpenRequest) -> None:
        del self._open[entry.request.id]
        self._deadlines.remove(entry.request.id)

    def _drop(self, reason: DropReason) -> Sequence[Command]:
        self._dropped[reason] += 1
        return ()


def _why_unusable(entry: OpenRequest, fact: Event | Admitted | Rejected) -> DropReason | None:
    """Why the book must not use this fact about an open request; None: it may."""
    if isinstance(fact, Admitted):
        return None
    if isinstance(fact, Rejected):
        return DropReason.CONTRADICTION if entry.known_to_worker else None
    if fact.attempt != entry.request.attempt:
        return DropReason.FOREIGN
    if isinstance(fact, Started):
        return None if entry.started_at is None else DropReason.DUPLICATE
    if not entry.has(fact.sequence):
        return DropReason.FOREIGN
    if not entry.is_open(fact.sequence):
        return DropReason.LATE
    if isinstance(fact, TokenGenerated) and fact.index < entry.next_index(fact.sequence):
        return DropReason.DUPLICATE
    return None
