"""What `core.requests.RequestBook` orders its driver to do. The driver adds nothing of its own."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from .events import TokenGenerated, TokensGenerated
from .handover import Offer
from .ids import LeaseId, RequestId, Seconds, WorkerId
from .request import FinishReason, Rejected, Request, Stage


class Outcome(StrEnum):
    """How a request ended: exactly one of these, exactly once."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    REJECTED = "rejected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt of a request. None: it did not come so far.

    `began_at`: the request came, or the attempt before was given up. `route`: its workers, such as
    "prefill-0 > decode-1" or "mixed-0", then the reason. `first_token_at`: its own first token, not
    the request's. `computed_tokens`: of its prompt and of what was delivered before it, those that
    its first worker had to compute; 0 until that begins.
    """

    began_at: Seconds
    routed_at: Seconds
    route: str
    fetched_at: Seconds | None = None
    offered_at: Seconds | None = None
    adopted_at: Seconds | None = None
    pulled_at: Seconds | None = None
    first_token_at: Seconds | None = None
    computed_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, every stage stamp from one monotonic clock. None: that stage was not reached.

    Metrics, logs and reports are views of this record.
    """

    request: RequestId
    outcome: Outcome
    finish_reasons: tuple[FinishReason, ...]
    """One a sequence; none if the request was rejected."""
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    attempts: int
    preemptions: int
    arrived_at: Seconds
    started_at: Seconds | None
    first_token_at: Seconds | None
    last_token_at: Seconds | None
    ended_at: Seconds
    message: str = ""
    exact: bool = True
    """False: an attempt ran, or KV came from, under another numerics id."""
    pulled_tokens: int = 0
    recomputed_tokens: int = 0
    """Tokens that were to be pulled or fetched and could not be had."""
    fetched_tokens: int = 0
    """Of `cached_tokens`: those that came from the store."""
    trail: tuple[AttemptRecord, ...] = ()
    """The attempts that were given to a worker, in order; of very many the last ones."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Hand the request to a worker, and report its answer to `heard`.

    `fetch`: so many tokens that its prompt begins with are believed to be in the store, and worth
    fetching if the worker has not got them.
    """

    request: Request
    worker: WorkerId
    stage: Stage = Stage.WHOLE
    fetch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Tell an offer's owner who may take it, and report the answer to `heard`."""

    request: RequestId
    attempt: int
    owner: WorkerId
    lease: LeaseId
    taker: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Hand the request to the worker that goes on with the offer; its answer goes to `heard`."""

    request: Request
    worker: WorkerId
    offer: Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Tell an owner that these offers are still wanted."""

    owner: WorkerId
    leases: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Tell an owner that nobody will take this offer."""

    owner: WorkerId
    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell a worker to stop one sequence, or the whole request (`sequence=None`)."""

    request: RequestId
    attempt: int
    worker: WorkerId
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Drained:
    """A worker that was to be drained has nothing of this gateway's left."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass this token on to the client: each (sequence, index) comes once and in order."""

    token: TokenGenerated


@dataclass(frozen=True, slots=True)
class DeliverRun:
    """The same for all tokens of a run, in their order."""

    run: TokensGenerated


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSequence:
    """No more tokens of this sequence will be delivered."""

    request: RequestId
    sequence: int
    reason: FinishReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Settle:
    """The request is over; the last command about it. `rejected` is set if it was refused."""

    record: RequestRecord
    rejected: Rejected | None = None


Command: TypeAlias = (
    Dispatch
    | Grant
    | Adopt
    | Renew
    | Release
    | Abort
    | Deliver
    | DeliverRun
    | EndSequence
    | Settle
    | Drained
)
