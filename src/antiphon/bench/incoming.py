"""An answer while it comes: which bytes are content, when they came, and how it ended.

Content is text, reasoning, a refusal or a call of a tool. Headers, chunks that only name a role,
empty pieces and keep-alive comments are none: they get no stamp.

A stream has come to its end with `[DONE]`, or when it stops after each choice has said why it
finished (some servers leave `[DONE]` out). All other ends are `CUT_SHORT`. A choice that finished
because the server could not go on is the server's error.
"""

import asyncio
from collections.abc import Callable, Mapping

from antiphon.types import CallError, Seconds, TokenSource

from .answer import Answer, Choice, ScoredToken
from .chunks import Chunk, Piece, Said, Usage, decoded
from .server import LoadLimits
from .sse import SseSplitter

_MESSAGE_CHARS = 500
_REFUSAL_BYTES = 2**16
"""Of a refusal's text, that are read to find its message."""
_OVERLOADED = (429, 503)
_BROKEN_OFF = frozenset({"error", "abort", "deadline"})
"""Reasons to finish that are none of the API's: the server gave up."""
_NOTHING = Said()


class Incoming:
    """One answer as far as it has come. `done` is resolved once, at its end, good or bad.

    The connection tells it what comes, with the time at which it did; whoever waits may `give_up`.
    """

    def __init__(
        self,
        choices: int,
        limits: LoadLimits,
        done: asyncio.Future[None],
        *,
        streamed: bool,
        on_first_content: Callable[[], None] = lambda: None,
    ) -> None:
        self.done = done
        self._on_first_content = on_first_content
        self._status = 0
        self._request_id = ""
        self.failure: CallError | None = None
        self._message = ""
        self._stamps: list[Seconds] = []
        self._usage: Usage | None = None
        self.ended_at: Seconds | None = None
        self._texts: list[list[str]] = [[] for _ in range(choices)]
        self._asides: list[list[str]] = [[] for _ in range(choices)]
        self._scored: list[list[ScoredToken]] = [[] for _ in range(choices)]
        self._reasons: list[str | None] = [None] * choices
        self._limits = limits
        self._streamed = streamed
        self._events: SseSplitter | None = None
        self._type = ""
        self._page = bytearray()
        """What is not streamed."""
        self._size = 0
        self._last_at: Seconds = 0.0

    def answer(self, number: int, due_at: Seconds, sent_at: Seconds) -> Answer:
        """What came of the ask of this number. Call it after the end."""
        assert self.ended_at is not None
        usage, pieces = self._usage, len(self._stamps)
        is_counted = usage is not None and bool(usage.completion_tokens or not pieces)
        return Answer(
            number=number,
            due_at=due_at,
            sent_at=sent_at,
            ended_at=self.ended_at,
            status=self._status,
            choices=self._choices(),
            token_at=tuple(self._stamps),
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=((usage and usage.completion_tokens) or 0) if is_counted else pieces,
            cached_tokens=usage.cached_tokens if usage else None,
            counted_by=TokenSource.USAGE if is_counted else TokenSource.PIECES,
            request_id=self._request_id,
            error=self._message,
            failure=self.failure,
        )

    def _choices(self) -> tuple[Choice, ...]:
        return tuple(
            Choice("".join(text), reason, tuple(scored), "".join(aside))
            for text, reason, scored, aside in zip(
                self._texts, self._reasons, self._scored, self._asides, strict=True
            )
        )

    # What the connection tells.

    def head(self, status: int, headers: Mapping[str, str], now: Seconds) -> None:
        """Mutates: status and headers have come; names are in small letters."""
        if self.ended_at is not None:
            return
        self._status = status
        self._request_id = headers.get("x-request-id", "")
        self._last_at = now
        self._type = headers.get("content-type", "").partition(";")[0].strip().lower()
        coding = headers.get("content-encoding", "identity").lower()
        if coding not in ("", "identity"):
            self._fail(CallError.GARBAGE, f"compressed ({coding}), though that was not asked", now)
        elif status == 200 and self._streamed and self._type in ("text/event-stream", ""):
            self._events = SseSplitter(self._limits.max_event_bytes)

    def body(self, data: bytes, now: Seconds) -> None:
        """Mutates: so much more of the answer has come."""
        if self.ended_at is not None:
            return
        self._size += len(data)
        self._last_at = now
        if self._size > self._limits.max_answer_bytes:
            limit = self._limits.max_answer_bytes
            self._fail(CallError.GARBAGE, f"the answer is longer than {limit} bytes", now)
        elif self._events is None:
            self._page += data if self._status == 200 else data[: _REFUSAL_BYTES - len(self._page)]
        else:
            for event in self._events.feed(data):
                self._take_event(event, now)
            if self._events.overflowed:
                limit = self._limits.max_event_bytes
                self._fail(CallError.GARBAGE, f"an event is longer than {limit} bytes", now)

    def end(self, now: Seconds) -> None:
        """Mutates: the whole answer is here."""
        if self.ended_at is not None:
            return
        if self._status != 200:
            self._fail(_kind_of(self._status), self._refusal(), now)
        elif self._events is not None:
            self._stop(CallError.CUT_SHORT, "the stream ended before [DONE]", now)
        else:
            self._take_page(now)

    def lost(self, why: str, now: Seconds) -> None:
        """Mutates: the connection broke."""
        if self.ended_at is not None:
            return
        if self._status == 0:
            self._fail(CallError.UNREACHABLE, why, now)
        else:
            self._stop(CallError.CUT_SHORT, why, now)

    def garbage(self, why: str, now: Seconds) -> None:
        """Mutates: what comes is no HTTP."""
        if self.ended_at is None:
            self._fail(CallError.GARBAGE, why, now)

    def give_up(self, kind: CallError, why: str, now: Seconds) -> None:
        """Mutates: nobody waits any longer. All content may have come nevertheless."""
        if self.ended_at is None:
            self._stop(kind, why, now)

    # What comes of it.

    def _take_event(self, event: bytes, now: Seconds) -> None:
        if self.ended_at is not None or not event:
            return
        if event == b"[DONE]":
            self._finish(now)
        elif (chunk := decoded(event)) is None:
            text = event[:80].decode(errors="replace")
            self._fail(CallError.GARBAGE, f"not a chunk of the API: {text}", now)
        else:
            self._take(chunk, now)

    def _take_page(self, now: Seconds) -> None:
        text = self._page[:_MESSAGE_CHARS].decode(errors="replace")
        chunk = decoded(bytes(self._page))
        if chunk is not None and chunk.error_message() is not None:
            self._take(chunk, now)
        elif self._streamed:
            wanted = "a stream was asked for (text/event-stream)"
            self._fail(CallError.GARBAGE, f"{wanted}, but {self._type} came: {text}", now)
        elif chunk is None or not chunk.choices:
            self._fail(CallError.GARBAGE, f"not an answer of the API: {text}", now)
        else:
            self._take(chunk, now)
            if self.ended_at is None:
                self._finish(now)

    def _take(self, chunk: Chunk, now: Seconds) -> None:
        if (message := chunk.error_message()) is not None:
            self._fail(CallError.SERVER_ERROR, message, now)
            return
        if chunk.usage is not None:
            self._usage = chunk.usage
        for piece in chunk.choices or ():
            if not 0 <= piece.index < len(self._texts):
                why = f"a choice of index {piece.index} was not asked for"
                self._fail(CallError.GARBAGE, why, now)
                return
            self._take_piece(piece, now)

    def _take_piece(self, piece: Piece, now: Seconds) -> None:
        said = piece.delta or piece.message or _NOTHING
        text, aside = said.content or piece.text, said.aside()
        if text:
            self._texts[piece.index].append(text)
        if aside:
            self._asides[piece.index].append(aside)
        if text or aside:
            if not self._stamps:
                self._on_first_content()
            self._stamps.append(now)
        if piece.logprobs is not None:
            self._scored[piece.index] += piece.scored()
        if piece.finish_reason is not None:
            self._reasons[piece.index] = piece.finish_reason

    def _refusal(self) -> str:
        """The message of an answer that is none."""
        chunk = decoded(bytes(self._page))
        message = chunk and chunk.error_message()
        text = message or self._page.decode(errors="replace").strip()
        return f"HTTP {self._status}: {text}" if text else f"HTTP {self._status}"

    def _stop(self, kind: CallError, why: str, now: Seconds) -> None:
        """No more will come."""
        if self._streamed and all(self._reasons):
            self._finish(self._last_at)
        else:
            self._fail(kind, why, now)

    def _finish(self, now: Seconds) -> None:
        gave_up = _BROKEN_OFF.intersection(reason or "" for reason in self._reasons)
        if gave_up:
            why = f"the server ended the answer with {min(gave_up)!r}"
            self._fail(CallError.SERVER_ERROR, why, now)
        else:
            self._end(now)

    def _fail(self, kind: CallError, message: str, now: Seconds) -> None:
        if self.ended_at is None:
            self.failure, self._message = kind, message[:_MESSAGE_CHARS]
            self._end(now)

    def _end(self, now: Seconds) -> None:
        self.ended_at = now
        self._page.clear()
        if not self.done.done():
            self.done.set_result(None)


def _kind_of(status: int) -> CallError:
    """Of an answer other than 200."""
    if status in _OVERLOADED:
        return CallError.OVERLOADED
    if 400 <= status < 500:
        return CallError.REFUSED
    return CallError.SERVER_ERROR if status >= 500 else CallError.GARBAGE
