"""What `core.requests.RequestBook` orders its driver to do. The driver adds nothing of its own."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from .events import TokenGenerated
from .ids import RequestId, Seconds
from .request import FinishReason, Rejected, Request


class Outcome(StrEnum):
    """How a request ended: exactly one of these, exactly once."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    REJECTED = "rejected"
    FAILED = "failed"


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


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Hand the request to the worker, and report its answer to `heard`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell the worker to stop one sequence, or the whole request (`sequence=None`)."""

    request: RequestId
    attempt: int
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass this token on to the client: each (sequence, index) comes once and in order."""

    token: TokenGenerated


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


Command: TypeAlias = Dispatch | Abort | Deliver | EndSequence | Settle
