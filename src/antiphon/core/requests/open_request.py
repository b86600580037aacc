"""What the book knows of one request that is not settled yet."""

from collections import deque
from dataclasses import replace

from antiphon.core.end_marks import EndMarks
from antiphon.types import (
    AttemptRecord,
    EndSequence,
    FinishReason,
    Offer,
    Outcome,
    Rejected,
    Request,
    RequestId,
    RequestRecord,
    Seconds,
    Started,
    TokenId,
    WorkerId,
)

from .attempt import Attempt

_OUTCOMES = (
    (FinishReason.ERROR, Outcome.FAILED),
    (FinishReason.DEADLINE, Outcome.DEADLINE),
    (FinishReason.ABORTED, Outcome.CANCELLED),
)
"""The worst end of any sequence names the outcome of the request; else it is FINISHED."""

_LONGEST_TRAIL = 32
"""Attempts on record: of a request with more the last ones."""


class OpenRequest:
    """Progress of one request over all its attempts, and the stamps of its stages."""

    def __init__(self, request: Request, arrival: int, now: Seconds) -> None:
        self.arrival = arrival
        self.attempt = Attempt(request, now if request.arrived_at is None else request.arrived_at)
        self.offer: Offer | None = None
        """KV that was offered and is not taken yet. It outlives attempts."""
        self.fruitless = 0
        """Attempts in a row that the death of a worker that had begun, or a fault, ended before a
        new token came."""
        self.refused_by: list[WorkerId] = []
        """Workers that had no room for it since it was last asked for in vain."""
        self.refusal: Rejected | None = None
        self.whole = False
        """A part of it was too long for a worker: one has to do all of it."""
        self.refusals = 0
        """Rounds in a row in which every worker refused."""
        self.preemptions = 0
        self.pulled_tokens = 0
        self.recomputed_tokens = 0
        self.exact = True
        self.numerics: str | None = None
        """Under which the first token was computed."""
        self.started_at: Seconds | None = None
        self.untouched = True
        """Nothing was delivered and no sequence has ended: it can still be refused."""
        self._original = request
        self._accepted: list[list[TokenId]] = [[] for _ in range(request.sampling.n)]
        for sequence, tokens in enumerate(request.resumed):
            self._accepted[sequence].extend(tokens)
        self._ends: list[FinishReason | None] = [None] * request.sampling.n
        self._trail: deque[AttemptRecord] = deque(maxlen=_LONGEST_TRAIL - 1)
        """The records of earlier attempts."""
        self._earlier = 0
        """How many there were."""
        self._message = ""
        self._cached_tokens: int | None = None
        self._fetched_tokens = 0
        self._arrived_at = now if request.arrived_at is None else request.arrived_at
        self._first_token_at: Seconds | None = None
        self._last_token_at: Seconds | None = None

    @property
    def id(self) -> RequestId:
        """The request's id, in all attempts."""
        return self._original.id

    @property
    def arrived_at(self) -> Seconds:
        """When the call came in."""
        return self._arrived_at

    @property
    def request(self) -> Request:
        """The request as the current attempt has it."""
        return self.attempt.request

    # ── sequences ────────────────────────────────────────────────────────────────────────────

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
        return len(self._accepted[sequence])

    def accept_tokens(self, sequence: int, tokens: tuple[TokenId, ...], now: Seconds) -> None:
        """Mutates: the next tokens of this sequence are on their way to the client."""
        self._accepted[sequence] += tokens
        self.untouched = False
        self.fruitless = 0
        self.attempt.started = True
        if self.started_at is None:  # `Started` was lost or comes late: a token says as much
            self.started_at = now
        if self._first_token_at is None:
            self._first_token_at = now
        self._last_token_at = now

    def end(self, sequence: int, reason: FinishReason, message: str) -> EndSequence:
        """Mutates: the sequence, which must be open, is over."""
        self._ends[sequence] = reason
        self.untouched = False
        self._message = self._message or message
        return EndSequence(request=self.id, sequence=sequence, reason=reason, message=message)

    def is_cut_short(self, sequence: int, reason: FinishReason, longest: int) -> bool:
        """Would the sequence, which is open, end as if complete though its last tokens are missing?

        `longest`: how many tokens prompt and output may have on the worker that says so.
        """
        tokens, limit = self._accepted[sequence], self._original.sampling.max_tokens
        match reason:
            case FinishReason.STOP:
                marks = EndMarks.of(self._original)
                return not tokens or not marks.end(tokens[-1], len(tokens))
            case FinishReason.LENGTH:
                full = len(self._original.prompt) + len(tokens) >= longest
                return not full and (limit is None or len(tokens) < limit)
            case FinishReason.ABORTED | FinishReason.DEADLINE | FinishReason.ERROR:
                return False

    def overrun(self) -> list[tuple[int, FinishReason]]:
        """Open sequences that their last token has ended: only the word of it was lost."""
        marks, limit = EndMarks.of(self._original), self._original.sampling.max_tokens
        over: list[tuple[int, FinishReason]] = []
        for sequence in self.open_sequences():
            tokens = self._accepted[sequence]
            if tokens and marks.end(tokens[-1], len(tokens)):
                over.append((sequence, FinishReason.STOP))
            elif limit is not None and len(tokens) >= limit:
                over.append((sequence, FinishReason.LENGTH))
        return over

    # ── attempts ─────────────────────────────────────────────────────────────────────────────

    def resumed(self) -> Request:
        """The current attempt's request, to go on after what was delivered and has ended."""
        return replace(
            self.request,
            resumed=tuple(map(tuple, self._accepted)),
            done=tuple(sequence for sequence, end in enumerate(self._ends) if end is not None),
        )

    def try_again(self, now: Seconds) -> None:
        """Mutates: the next attempt begins, and waits for a worker. An offer stays."""
        if (record := self.attempt.record) is not None:
            self._trail.append(record)
            self._earlier += 1
        self.attempt = Attempt(replace(self.resumed(), attempt=self.request.attempt + 1), now)

    @property
    def was_routed(self) -> bool:
        """Some attempt had workers."""
        return self._earlier > 0 or self.attempt.routed_at is not None

    def start(self, fact: Started, now: Seconds) -> None:
        """Mutates: an attempt's first chunk began `queued_s` after the worker was given it.

        The report may have waited, so its arrival is no measure. What the first attempt found in a
        cache is what the client is told.
        """
        self.attempt.started = True
        self.attempt.computes(fact.cached_tokens)
        if self._cached_tokens is None:
            self._cached_tokens = min(max(fact.cached_tokens, 0), len(self._original.prompt))
            self._fetched_tokens = min(max(fact.stored_tokens, 0), self._cached_tokens)
        if self.started_at is None:
            routed_at = self.attempt.routed_at
            given_at = self._arrived_at if routed_at is None else routed_at
            self.started_at = min(given_at + max(fact.queued_s, 0.0), now)

    def not_fetched(self, tokens: int) -> None:
        """Mutates: a fetch is over, and brought so many tokens less than it was to bring.

        If computing began before its end, `start` has counted them as if they were here.
        """
        self.recomputed_tokens += tokens
        if self.attempt.started and not self._earlier and self._cached_tokens is not None:
            self._fetched_tokens = max(0, self._fetched_tokens - tokens)
            self._cached_tokens = max(0, self._cached_tokens - tokens)

    # ── the end ──────────────────────────────────────────────────────────────────────────────

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
        record = self.attempt.record
        latest = () if record is None else (record,)
        return RequestRecord(
            request=self.id,
            outcome=outcome,
            finish_reasons=reasons,
            prompt_tokens=len(self._original.prompt),
            cached_tokens=self._cached_tokens or 0,
            output_tokens=sum(map(len, self._accepted)),
            attempts=max(1, self._earlier + len(latest)),
            preemptions=self.preemptions,
            arrived_at=self._arrived_at,
            started_at=self.started_at,
            first_token_at=self._first_token_at,
            last_token_at=self._last_token_at,
            ended_at=now,
            message=message,
            exact=self.exact,
            pulled_tokens=self.pulled_tokens,
            recomputed_tokens=self.recomputed_tokens,
            fetched_tokens=self._fetched_tokens,
            trail=(*self._trail, *latest),
        )
