"""What a scripted server does with a call, and what it tells of it afterwards."""

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from antiphon.types import Seconds


class Ending(StrEnum):
    """How an answer ends, or how it fails to be one. "In the middle": after half of its pieces."""

    WHOLE = "whole"
    NO_DONE = "no_done"
    """All but `[DONE]`."""
    NO_REASON = "no_reason"
    """All but `finish_reason` and `[DONE]`."""
    HALF = "half"
    """The stream ends in the middle, by the rules of HTTP."""
    RESET = "reset"
    """The connection is reset in the middle."""
    ERROR_EVENT = "error_event"
    """An error in the middle of the stream."""
    BAD_JSON = "bad_json"
    """A chunk that can't be read, in the middle."""
    ENDLESS_LINE = "endless_line"
    """A line that is longer than any chunk, in the middle."""
    HANGS = "hangs"
    """Nothing more comes after the middle, and the connection stays open."""
    SILENT = "silent"
    """Nothing comes at all."""
    CLOSED = "closed"
    """The connection is closed without an answer."""
    NOT_HTTP = "not_http"
    WRONG_TYPE = "wrong_type"
    """A page of HTML with status 200."""
    COMPRESSED = "compressed"
    STATUS_400 = "400"
    STATUS_401 = "401"
    STATUS_429 = "429"
    STATUS_500 = "500"
    STATUS_503 = "503"

    @property
    def status(self) -> int | None:
        """The status, if it is a refusal."""
        return int(self) if self.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What the calls of one model get: `max_tokens` tokens, at exactly these times.

    Times count from when the server has a slot for the call. `ttft_s` is one value, or one for each
    call in turn; so is `gap_s` for the pieces of a call. The head comes with the first piece, or
    `head_s` after the slot. `keep_alive_s`: a comment each so often before the first piece.
    `refuses` are fields of the body that bring a 400.
    """

    ttft_s: Seconds | tuple[Seconds, ...] = 0.0
    gap_s: Seconds | tuple[Seconds, ...] = 0.0
    head_s: Seconds | None = None
    keep_alive_s: Seconds | None = None
    tokens_a_piece: int = 1
    role_chunk: bool = True
    usage: bool = True
    details: bool = True
    """Usage says how much of the prompt was cached."""
    reasoning: bool = False
    """Pieces are of reasoning, not of text."""
    ending: Ending = Ending.WHOLE
    refuses: frozenset[str] = frozenset()

    def first_s(self, call: int) -> Seconds:
        """From the slot to the first piece of the model's call of this number."""
        return _in_turn(self.ttft_s, call)

    def next_s(self, piece: int) -> Seconds:
        """From the piece before this one to it."""
        return _in_turn(self.gap_s, piece)


def _in_turn(values: Seconds | tuple[Seconds, ...], number: int) -> Seconds:
    return values[number % len(values)] if isinstance(values, tuple) else values


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Behaviours by model. `slots`: calls that are served at a time, others wait in order of
    arrival; None: all. `stalls`: from when to when nothing is written, in seconds from the first
    call; what comes after it comes later by as much.
    """

    models: dict[str, Behaviour]
    slots: int | None = None
    stalls: tuple[tuple[Seconds, Seconds], ...] = ()


@dataclass(slots=True)
class ServedCall:
    """What really happened to a call, on the machine's monotonic clock.

    `piece_at`: when each piece of content was handed to the socket. `is_cut_off`: the client went
    away before the end.
    """

    request_id: str
    model: str
    received_at: Seconds
    piece_at: list[Seconds] = field(default_factory=list)
    is_cut_off: bool = False


class CallSays(msgspec.Struct):
    """What a scripted server reads of a call. Without `messages` it is a completion's."""

    model: str
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool = False
    stream_options: dict[str, object] | None = None
    messages: list[object] | None = None

    @property
    def tokens(self) -> int:
        """How long the answer is to be."""
        return self.max_tokens or self.max_completion_tokens or 16

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with the count of tokens."""
        return bool((self.stream_options or {}).get("include_usage"))
