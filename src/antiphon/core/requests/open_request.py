"""What the book knows of one request that is not settled yet."""

from antiphon.types import (
    EndSequence,
    FinishReason,
    Outcome,
    Request,
    RequestRecord,
    Seconds,
)

_OUTCOMES = (
    (FinishReason.ERROR, Outcome.FAILED),
    (FinishReason.DEADLINE, Outcome.DEADLINE),
    (FinishReason.ABORTED, Outcome.CANCELLED),
)
"""The worst end of any sequence names the outcome of the request; else it is FINISHED."""


class OpenRequest:
    """Progress of one request: what was accepted per sequence, and the stamps of its stages."""

    def __init__(self, request: Request, now: Seconds) -> None:
        self.request = request
        self.attempts = 1
        self.known_to_worker = False
        """Its worker has admitted it, or has reported about it, which says as much."""
        self.preemptions = 0
        self.started_at: Seconds | None = None
        self._accepted = [0] * request.sampling.n
        for sequence, tokens in enumerate(request.resumed):
            self._accepted[sequence] = len(tokens)
        self._ends: list[FinishReason | None] = [None] * request.sampling.n
        self._message = ""
        self._cached_tokens = 0
        self._arrived_at = now if request.arrived_at is None else request.arrived_at
        self._dispatched_at = now
        self._first_token_at: Seconds | None = None
        self._last_token_at: Seconds | None = None

    def has(self, sequence: int) -> bool:
        """Is there a sequence of this number, open or ended?"""
        return 0 <= sequence < len(self._ends)

    def is_open(self, sequence: int) -> bool:
        """May this sequence (which must exist) still get tokens?"""
        return self._ends[sequence] is None

    def open_sequences(self) -> list[int]:
        """Sequences without an end, in order."""
        return [sequence for sequence, end in enumerate(self._ends) if end is None]

    def next_index(self, sequence: int) -> int:
        """The only index that the sequence's next token may have."""
        return self._accepted[sequence]

    def start(self, cached_tokens: int, queued_s: Seconds, now: Seconds) -> None:
        """Mutates: its first chunk began `queued_s` after the worker was given it.

        The worker's report comes with that chunk's result, so its arrival is no measure.
        """
        self.started_at = min(self._dispatched_at + max(queued_s, 0.0), now)
        self._cached_tokens = cached_tokens

    def accept_token(self, sequence: int, now: Seconds) -> None:
        """Mutates: one more token of this sequence is on its way to the client."""
        self._accepted[sequence] += 1
        if self.started_at is None:  # `Started` was lost or comes late: a token says as much
            self.started_at = now
        if self._first_token_at is None:
            self._first_token_at = now
        self._last_token_at = now

    def end(self, sequence: int, reason: FinishReason, message: str) -> EndSequence:
        """Mutates: the sequence, which must be open, is over."""
        self._ends[sequence] = reason
        self._message = self._message or message
        return EndSequence(
            request=self.request.id, sequence=sequence, reason=reason, message=message
        )

    def record(self, now: Seconds) -> RequestRecord:
        """The request's record, all of whose sequences have ended."""
        reasons = tuple(end for end in self._ends if end is not None)
        outcome = next((o for end, o in _OUTCOMES if end in reasons), Outcome.FINISHED)
        return self._record(outcome, reasons, self._message, now)

    def refused_record(self, message: str, now: Seconds) -> RequestRecord:
        """The record of a request that was never taken: its sequences have no ends."""
        return self._record(Outcome.REJECTED, (), message, now)

    def _record(
        self, outcome: Outcome, reasons: tuple[FinishReason, ...], message: str, now: Seconds
    ) -> RequestRecord:
        return RequestRecord(
            request=self.request.id,
            outcome=outcome,
            finish_reasons=reasons,
            prompt_tokens=len(self.request.prompt),
            cached_tokens=self._cached_tokens,
            output_tokens=sum(self._accepted),
            attempts=self.attempts,
            preemptions=self.preemptions,
            arrived_at=self._arrived_at,
            started_at=self.started_at,
            first_token_at=self._first_token_at,
            last_token_at=self._last_token_at,
            ended_at=now,
            message=message,
        )
