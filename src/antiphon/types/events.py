"""What a worker tells its gateway. Each carries the attempt that it belongs to."""

from dataclasses import dataclass
from typing import TypeAlias

from .handover import Offer, Prefilled
from .ids import BlockKey, PageId, RequestId, Seconds, TokenId
from .plan import Logprobs
from .request import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The request's first chunk is about to run; `cached_tokens` of its prompt need no compute.

    Of these, `stored_tokens` came from the store, or are still coming: then `Fetched` is said after
    this, and what is missing of it counts in neither number. `queued_s`: since it was added, a
    fetch included.
    """

    request: RequestId
    attempt: int
    cached_tokens: int
    queued_s: Seconds
    stored_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGenerated:
    """Output token number `index` (from 0) of a sequence."""

    request: RequestId
    attempt: int
    sequence: int
    index: int
    token: TokenId
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensGenerated:
    """Output tokens number `index` and following of a sequence, of steps that were run in a row.

    `seconds` from the first of them to the last.
    """

    request: RequestId
    attempt: int
    sequence: int
    index: int
    tokens: tuple[TokenId, ...]
    seconds: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceEnded:
    """The last event of a sequence on this worker."""

    request: RequestId
    attempt: int
    sequence: int
    reason: FinishReason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The worker's last event of an attempt that it gives up: the fault is its own.

    Nothing of the attempt is left there. What was said of it before holds; sequences that have not
    ended may go on elsewhere. A fault of a sequence itself is a `SequenceEnded`.
    """

    request: RequestId
    attempt: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """Memory ran out against prediction: the sequence gave its pages back and recomputes later."""

    request: RequestId
    attempt: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The KV of an adopted request is here, and its lease acknowledged: it decodes from now on.

    `missing_tokens` could not be had (the owner died, the lease was gone, a page was not what was
    offered: `problem` says which) and are computed here.
    """

    request: RequestId
    attempt: int
    pulled_tokens: int
    cached_tokens: int
    missing_tokens: int = 0
    problem: str = ""
    seconds: Seconds = 0.0
    moved_bytes: int = 0
    """Of the pages that came: whole ones, and of layers with windows the last window's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A fetch from the store is over: the request runs from now on, and computes what is missing.

    `missing_tokens` were believed to be in the store and could not be had: `problem` says why.
    """

    request: RequestId
    attempt: int
    fetched_tokens: int
    missing_tokens: int = 0
    problem: str = ""
    seconds: Seconds = 0.0


Event: TypeAlias = (
    Started
    | TokenGenerated
    | TokensGenerated
    | SequenceEnded
    | Preempted
    | Offer
    | Pulled
    | Fetched
    | AttemptFailed
)

SchedulerEvent: TypeAlias = Event | Prefilled
"""What a scheduler tells its own driver, which makes an `Offer` of `Prefilled`."""


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A complete block entered this worker's prefix cache, or what was missing of it did. It lies
    in `pages`, in order.

    `tenant` names whose it is; `tokens` are those of the block alone.
    """

    key: BlockKey
    parent: BlockKey | None
    pages: tuple[PageId, ...] = ()
    tokens: tuple[TokenId, ...] = ()
    tenant: bytes = b""


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A block left this worker's prefix cache.

    `doubtful`: not for want of room, but because what computed it has failed. A copy of it that
    was made meanwhile can't be trusted either, nor one of a block of which only a part was here:
    so it may be of one that was never said to be stored.
    """

    key: BlockKey
    doubtful: bool = False


KvEvent: TypeAlias = BlockStored | BlockRemoved
