"""What virtual processes send each other, and which boundary it crosses.

Commands and facts travel as they are. A point in time would mean nothing on another clock, so a
request is sent without its deadline, and beside it the seconds that are left.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from antiphon.core.faults import Boundary
from antiphon.core.handover import Acknowledge, RenewTaken, Take
from antiphon.types import (
    Abort,
    Admitted,
    Adopt,
    AttemptFailed,
    Dispatch,
    Event,
    GrantAnswered,
    Incarnation,
    KvDump,
    KvEvents,
    KvReplay,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    Offer,
    Pulled,
    Rejected,
    Release,
    Renew,
    Request,
    RequestId,
    Seconds,
    SequenceEnded,
    Stage,
    TokenGenerated,
    TokensGenerated,
    WorkerInfo,
    WorkerView,
)

from .shadow_kv import ShadowKv


@dataclass(frozen=True, slots=True)
class Join:
    """A worker's first word on its stream to the gateway."""

    info: WorkerInfo


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender lives. A worker adds its counts."""

    view: WorkerView | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """`Dispatch`, with the seconds that are left until the deadline."""

    request: Request
    left_s: Seconds | None
    stage: Stage
    fetch: int = 0


@dataclass(frozen=True, slots=True)
class TakeOver:
    """`Adopt`, with the seconds that are left until the deadline."""

    request: Request
    left_s: Seconds | None
    offer: Offer


@dataclass(frozen=True, slots=True)
class GrantTo:
    """`Grant`, with the life of the taker that is meant."""

    request: RequestId
    attempt: int
    lease: LeaseId
    taker: Incarnation


@dataclass(frozen=True, slots=True)
class Mapped:
    """An owner's first word to a taker: here is its memory, to be read at any time."""

    incarnation: Incarnation
    memory: ShadowKv


@dataclass(frozen=True, slots=True)
class Ask:
    """What a taker's puller has to say to the owner, and which life of the taker says it."""

    command: Take | RenewTaken | Acknowledge
    taker: Incarnation


@dataclass(frozen=True, slots=True)
class Answer:
    """What the owner did with each lease of an `Ask`."""

    to: Take | RenewTaken | Acknowledge
    answers: tuple[LeaseHeld | LeaseRefused, ...]


ToGateway: TypeAlias = (
    Join | Heartbeat | Event | Admitted | Rejected | GrantAnswered | KvDump | KvEvents
)
ToWorker: TypeAlias = Heartbeat | Add | TakeOver | GrantTo | Renew | Release | Abort | KvReplay
ToTaker: TypeAlias = Mapped | Answer
ClusterMessage: TypeAlias = ToGateway | ToWorker | Ask | ToTaker

_BOUNDARIES: dict[type, Boundary] = {
    Join: Boundary.JOIN,
    Heartbeat: Boundary.HEARTBEAT,
    Add: Boundary.ADD,
    Admitted: Boundary.ANSWER,
    Rejected: Boundary.ANSWER,
    TokenGenerated: Boundary.TOKEN,
    TokensGenerated: Boundary.TOKEN,
    SequenceEnded: Boundary.END,
    AttemptFailed: Boundary.END,
    Offer: Boundary.OFFER,
    GrantTo: Boundary.GRANT,
    GrantAnswered: Boundary.GRANT_ANSWER,
    TakeOver: Boundary.ADOPT,
    Mapped: Boundary.JOIN,
    Take: Boundary.TAKE,
    RenewTaken: Boundary.RENEW,
    Acknowledge: Boundary.ACKNOWLEDGE,
    Answer: Boundary.TAKE_ANSWER,
    Pulled: Boundary.PULLED,
    Renew: Boundary.RENEW,
    Release: Boundary.RELEASE,
    Abort: Boundary.ABORT,
    KvDump: Boundary.KV,
    KvEvents: Boundary.KV,
    KvReplay: Boundary.KV,
}


def boundary_of(message: ClusterMessage) -> Boundary:
    """Which boundary a message crosses. What is said beside the tokens crosses theirs."""
    boundary = _BOUNDARIES.get(type(message))
    if boundary is not None:
        return boundary
    return _BOUNDARIES[type(message.command)] if isinstance(message, Ask) else Boundary.TOKEN


def without_times(request: Request, now: Seconds) -> tuple[Request, Seconds | None]:
    """A request as it is sent, and the seconds that are left for it."""
    left_s = None if request.deadline is None else request.deadline - now
    return replace(request, deadline=None, arrived_at=None), left_s


def with_deadline(request: Request, left_s: Seconds | None, now: Seconds) -> Request:
    """A request as its receiver sees it."""
    return request if left_s is None else replace(request, deadline=now + left_s)


def dispatched(command: Dispatch, now: Seconds) -> Add:
    """A `Dispatch` as a message."""
    request, left_s = without_times(command.request, now)
    return Add(request, left_s, command.stage, command.fetch)


def adopted(command: Adopt, now: Seconds) -> TakeOver:
    """An `Adopt` as a message."""
    request, left_s = without_times(command.request, now)
    return TakeOver(request, left_s, command.offer)
