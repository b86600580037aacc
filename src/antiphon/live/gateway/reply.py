"""What comes back for one HTTP call: the meeting point of the event pump and one reader.

The pump never waits for a reader. What a slow reader has not fetched is merged into one delta a
choice, so a reply holds at most the text of its own `n × max_tokens` tokens, however slow the
client is, and a client that fell behind catches up with one larger chunk.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from antiphon.text import ScoredToken
from antiphon.types import (
    FinishReason,
    Outcome,
    Rejected,
    RequestId,
    RequestRecord,
    Seconds,
)

from .errors import INTERNAL, HttpError, from_record, from_rejected


@dataclass(slots=True)
class Delta:
    """What one choice gained since the reader last looked."""

    choice: int
    pieces: list[str] = field(default_factory=list)
    scored: list[ScoredToken] = field(default_factory=list)
    finish: FinishReason | None = None

    @property
    def text(self) -> str:
        """The new text."""
        return self.pieces[0] if len(self.pieces) == 1 else "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What the call is billed for. A prompt counts once, however many choices it has."""

    prompt: int = 0
    cached: int = 0
    output: int = 0


class Reply:
    """One call's answer, growing. It is over when each of its requests has settled."""

    def __init__(self, first_choice: Mapping[RequestId, int], wake_on_token: bool) -> None:
        """`first_choice` maps each request of the call to the index of its sequence 0."""
        self._first_choice = dict(first_choice)
        self._open = set(first_choice)
        self._pending: dict[int, Delta] = {}
        self._wake_on_token = wake_on_token
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._quiet_since = 0.0
        self.quiet = False
        """Nothing was sent for the whole keep-alive time: send a comment."""
        self.counts = TokenCounts()
        self._broken_off: HttpError | None = None
        self.error: HttpError | None = None
        """Set at the first failure; the rest of the call is worthless then."""

    @property
    def requests(self) -> tuple[RequestId, ...]:
        """The requests of this call, in the order of their prompts."""
        return tuple(self._first_choice)

    @property
    def over(self) -> bool:
        """Nothing more will come; what is pending can still be taken."""
        return not self._open

    # The pump's side: none of these waits.

    def text(
        self, request: RequestId, sequence: int, text: str, scored: ScoredToken | None = None
    ) -> None:
        """Append to a choice."""
        delta = self._delta(request, sequence)
        if text:
            delta.pieces.append(text)
        if scored is not None:
            delta.scored.append(scored)
        if self._wake_on_token and (text or scored is not None):
            self._wake()

    def finish(self, request: RequestId, sequence: int, reason: FinishReason, message: str) -> None:
        """No more text comes for this choice."""
        self._delta(request, sequence).finish = reason
        if reason is FinishReason.ERROR and self.error is None:
            self.error = HttpError(500, message or INTERNAL.message, None, "internal_error")
            self._broken_off = self.error
        if self._wake_on_token or self.error is not None:
            self._wake()

    def fail(self, error: HttpError) -> None:
        """The call fails for this reason, unless it has failed already."""
        if self.error is None:
            self.error = error
            self._wake()

    def settle(self, record: RequestRecord, rejected: Rejected | None) -> None:
        """One request of the call is over."""
        self._open.discard(record.request)
        if rejected is not None and self.error in (None, self._broken_off):
            self.error = from_rejected(rejected)  # it says more than the errors that come with it
        elif self.error is None:
            self.error = from_record(record)
        if record.outcome is not Outcome.REJECTED:
            self.counts = TokenCounts(
                self.counts.prompt + record.prompt_tokens,
                self.counts.cached + record.cached_tokens,
                self.counts.output + record.output_tokens,
            )
        if not self._open or self.error is not None:
            self._wake()

    # The reader's side.

    async def changed(self) -> None:
        """Return when there is something to take, to send as keep-alive, or an end."""
        if self._pending and self._wake_on_token:
            return
        while not (self.over or self.quiet or self.error is not None):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
            if self._pending and self._wake_on_token:
                return

    def take(self) -> list[Delta]:
        """What is new, one delta a choice. Empties the pending part."""
        taken = list(self._pending.values())
        self._pending.clear()
        return taken

    def watch_silence(self, keep_alive_s: Seconds, clock: Callable[[], Seconds]) -> None:
        """Set `quiet` and wake the reader whenever `sent` was not called for `keep_alive_s`."""
        self._quiet_since = clock()
        loop = asyncio.get_running_loop()

        def look() -> None:
            left = self._quiet_since + keep_alive_s - clock()
            if left <= 0:
                self.quiet = True
                self._wake()
                left = keep_alive_s
            self._alarm = loop.call_later(left, look)

        self._alarm = loop.call_later(keep_alive_s, look)

    def sent(self, now: Seconds) -> None:
        """Something went out to the client."""
        self._quiet_since = now
        self.quiet = False

    def close(self) -> None:
        """Stop the silence alarm. Idempotent."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _delta(self, request: RequestId, sequence: int) -> Delta:
        choice = self._first_choice[request] + sequence
        delta = self._pending.get(choice)
        if delta is None:
            delta = self._pending[choice] = Delta(choice)
        return delta

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
