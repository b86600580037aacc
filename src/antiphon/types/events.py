"""What a worker tells its gateway. Each carries the attempt that it belongs to."""

from dataclasses import dataclass
from typing import TypeAlias

from .ids import BlockKey, RequestId, Seconds, TokenId
from .plan import Logprobs
from .request import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The request's first chunk is about to run; `cached_tokens` of its prompt need no compute."""

    request: RequestId
    attempt: int
    cached_tokens: int
    queued_s: Seconds


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
class SequenceEnded:
    """The last event of a sequence on this worker."""

    request: RequestId
    attempt: int
    sequence: int
    reason: FinishReason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """Memory ran out against prediction: the sequence gave its pages back and recomputes later."""

    request: RequestId
    attempt: int
    sequence: int


Event: TypeAlias = Started | TokenGenerated | SequenceEnded | Preempted


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A complete block entered this worker's prefix cache."""

    key: BlockKey
    parent: BlockKey | None


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A block left this worker's prefix cache."""

    key: BlockKey


KvEvent: TypeAlias = BlockStored | BlockRemoved
