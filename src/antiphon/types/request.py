"""A request, and the answers to "may it run?"."""

from dataclasses import dataclass, field
from enum import StrEnum

from .ids import RequestId, Seconds, TokenId
from .sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Latency targets: time to first token, and time per output token after it. inf: no target."""

    ttft_s: Seconds
    tpot_s: Seconds


class Stage(StrEnum):
    """How much of a request a worker is asked to do."""

    WHOLE = "whole"
    """Prompt and output."""
    PREFILL = "prefill"
    """The prompt (and what is resumed) and the next token of each unfinished sequence; then the
    worker offers the KV to whoever goes on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One prompt with one outcome; `sampling.n` sequences grow from it.

    In `sampling`, `max_tokens` and `seed` are resolved (never None). `eos_token_ids` is empty when
    the caller ignores end-of-sequence. `resumed[s]` holds the token ids of sequence `s` that were
    already delivered by an earlier attempt: they are not part of the prompt, so that penalties,
    limits, usage and log-probabilities come out as if nothing had happened. Sequences in `done`
    have ended and are not run. `priority`: lower is
    served first. `deadline` and `arrived_at` are points on the receiving process's clock; the
    latter is when the call came in, before its text was read (None: when the request is taken).
    `tenant_salt` keeps one tenant's cached blocks invisible to all others.
    """

    id: RequestId
    prompt: tuple[TokenId, ...]
    sampling: SamplingParams
    eos_token_ids: tuple[TokenId, ...] = ()
    attempt: int = 1
    resumed: tuple[tuple[TokenId, ...], ...] = ()
    done: tuple[int, ...] = ()
    priority: int = 0
    deadline: Seconds | None = None
    arrived_at: Seconds | None = None
    slo: Slo | None = None
    tenant_salt: bytes = b""


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    """End-of-sequence token, stop token id or stop string."""
    LENGTH = "length"
    """max_tokens, or the end of the model's context."""
    ABORTED = "abort"
    """Cancelled, or its client is gone."""
    DEADLINE = "deadline"
    ERROR = "error"


class RejectReason(StrEnum):
    """Why a request was not taken. The gateway maps each to an HTTP status."""

    TOO_LONG = "too_long"
    """Longer than the context or than the whole KV memory: it can never run here."""
    INVALID = "invalid"
    """A promise of `Request` is broken (for example a token id outside the vocabulary)."""
    QUEUE_FULL = "queue_full"
    DRAINING = "draining"
    DEADLINE = "deadline"
    """Its deadline had passed before it could be taken."""
    DUPLICATE = "duplicate"
    """This attempt of the request, or a later one, is already here."""
    NO_WORKER = "no_worker"
    """Nobody is there who could run it, now or soon."""
    TTFT_UNREACHABLE = "ttft_unreachable"
    """All are too busy for its first token to come in time: it would be computed in vain."""
    TPOT_UNREACHABLE = "tpot_unreachable"
    """All are too busy for its tokens to come fast enough after the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The request waits or runs from now on; `ahead` requests wait before it."""

    request: RequestId
    ahead: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The request was not taken and nothing was kept. `message` says what to change."""

    request: RequestId
    reason: RejectReason
    message: str
    field: str | None = None
    retry_after_s: Seconds | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """These sequences end now; pages in use by a running step return when it completes."""

    request: RequestId
    sequences: tuple[int, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """No such request here (it ended, or never came). Not an error: aborts race with endings."""

    request: RequestId
