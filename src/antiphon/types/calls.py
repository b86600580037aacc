"""One call to a server as its user saw it."""

from dataclasses import dataclass
from enum import StrEnum

from .ids import Seconds
from .request import Slo


class CallError(StrEnum):
    """What a call came to, if not to its end."""

    UNREACHABLE = "unreachable"
    """No connection, or it broke before the answer's status."""
    TIMEOUT = "timeout"
    """Not at its end within the client's limit."""
    OVERLOADED = "overloaded"
    """Refused for want of room: 429 or 503."""
    REFUSED = "refused"
    """Another 4xx: the call itself was wrong."""
    SERVER_ERROR = "server_error"
    """Another 5xx, or an error event within a stream."""
    GARBAGE = "garbage"
    """An answer that is none by the API."""
    CUT_SHORT = "cut_short"
    """A stream that ended before its end."""
    UNSENT = "unsent"
    """Not sent for want of room at the client: no fault of the server's."""
    ABANDONED = "abandoned"
    """Not sent, as a call that it follows failed."""


class TokenSource(StrEnum):
    """Who counted a call's tokens."""

    USAGE = "usage"
    """The server, in `usage`."""
    TOKENIZER = "tokenizer"
    """A tokenizer on the client's side."""
    PIECES = "pieces"
    """One piece of content is taken for one token, as nobody said better."""
    SIMULATION = "simulation"
    """Whoever made them up, in virtual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a run, live or in virtual time. Times count from the run's start.

    `due_at_s` is when it was to be sent, whatever the client was busy with: latencies count from it
    (no coordinated omission). For a call that follows others it is their end plus its pause.
    `token_at_s`: a stamp for each piece of content; a piece may hold several tokens, all of which
    `output_tokens` counts. `prompt_tokens`, and `cached_tokens` of them that needed no compute, are
    None where nobody has said how many. `only_ends`: `token_at_s` are the first and the last one's,
    others were not kept. `error` is None for a call that came to its end.
    """

    number: int
    session: int
    turn: int
    slo_class: str = ""
    model: str = ""
    due_at_s: Seconds
    sent_at_s: Seconds
    token_at_s: tuple[Seconds, ...] = ()
    only_ends: bool = False
    ended_at_s: Seconds
    prompt_tokens: int | None = None
    output_tokens: int = 0
    cached_tokens: int | None = None
    counted_by: TokenSource = TokenSource.USAGE
    status: int = 0
    error: CallError | None = None
    message: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """What was run, beside its calls: all that a reader who was not there has to know.

    Free text where it is only read by people. `warmup_s`: calls due before it count for nothing.
    `slos`: by class; "" is for whoever has none of their own (`inf`: no target). `devices`: what
    goodput is divided by. `rate_per_s`: calls a second that were planned; None: the trace's times.
    `lateness_p99_s` and `client_busy`: how late calls were sent, and the share of a core that the
    client used: whether the measuring tool was the bottleneck.
    """

    title: str
    target: str
    workload: str
    arrivals: str
    model: str = ""
    rate_per_s: float | None = None
    duration_s: Seconds
    warmup_s: Seconds = 0.0
    slos: tuple[tuple[str, Slo], ...] = ()
    devices: int = 1
    seed: int = 0
    started_at: str = ""
    """UTC, ISO 8601; empty in virtual time."""
    version: str = ""
    command: str = ""
    """What to type to run it again; without keys and passwords."""
    lateness_p99_s: Seconds = 0.0
    client_busy: float = 0.0
    notes: tuple[str, ...] = ()
    """What a reader should know before believing the numbers, a sentence each."""
