"""What the scheduler remembers of a request and of each of its sequences.

    waiting ──start──▶ running ──────────────▶ ended
       ▲                  │
       └────preempted─────┘

A request with n > 1 computes its prompt once: one sequence *leads*, those that have no token either
*follow* it until the prompt is computed, then each forks off and runs on its own.

A request whose KV changes hands moves as one *party*: sequences that earlier attempts gave tokens
follow too. Such a follower shares the pages of the prompt's complete blocks from the start, has
pages of its own for the rest, and goes on when the leader has computed the prompt.

    waiting ──start──▶ running ──▶ parked ──▶ offered: all of the party, under one lease   (prefill)
    waiting ──start──▶ receiving ──▶ running …                  (adopted, or fetched from the store)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.core.end_marks import EndMarks
from antiphon.core.kv import BlockKeys
from antiphon.core.urgency import urgency
from antiphon.types import (
    BlockKey,
    FinishReason,
    LeaseId,
    PageId,
    Request,
    Seconds,
    SequenceEnded,
    SequenceKey,
    Started,
    TokenId,
)

from .adoption import Adoption

Rank: TypeAlias = tuple[int, bool, float, int, int]
"""Order of service: class, preempted before fresh, urgency, arrival, sequence."""


@dataclass(slots=True, eq=False)
class RequestState:
    """One request that waits or runs here."""

    request: Request
    arrival: int
    """Number of requests taken before it: the last word of every order."""
    arrived_at: Seconds
    block_keys: BlockKeys
    marks: EndMarks
    max_tokens: int
    """Most output tokens of a sequence, the model's length and the memory considered."""
    worst_pages: int
    """Pages of a sequence of that length."""
    tenant: bytes
    """Whose request it is, where the salt is not to be seen."""
    sequences: list["SequenceState"] = field(default_factory=list)
    """By index, but for those that were done when it came, or have ended and left."""
    started: bool = False
    lease: LeaseId | None = None
    """Set if only the prompt is computed here: what its KV is offered under."""
    promised: tuple[PageId, ...] = ()
    """Once such a request has started: all pages that it takes part in."""
    adoption: Adoption | None = None
    """Set until the KV that another worker has computed is here."""
    fetch: int = 0
    """So many tokens are believed to be in the store; 0 as soon as it was asked, or need not be."""

    @property
    def is_party(self) -> bool:
        """Whether all its sequences start together."""
        return self.lease is not None or self.adoption is not None or self.fetch > 0

    @property
    def alive(self) -> list["SequenceState"]:
        """Sequences that have not ended, by index."""
        return [sequence for sequence in self.sequences if not sequence.ended]


@dataclass(slots=True, eq=False)
class SequenceState:
    """One sequence: its tokens, and how much of their KV lies in which pages."""

    owner: RequestState
    key: SequenceKey
    prompt_len: int
    length: int
    """Tokens of prompt and output so far."""
    output: list[TokenId]
    """The prompt is its request's: a long one is not copied."""
    resumed_len: int = 0
    """How many tokens earlier attempts gave it."""
    computed: int = 0
    """KV of positions below it is in the pages; for a follower: will be, when it goes on."""
    table: list[PageId] = field(default_factory=list)
    capacity: int = 0
    """Tokens that the table has room for."""
    sent: int = 0
    """Table entries that the engine knows."""
    passed_at: int = 0
    """How far it was computed when pages that had passed were last given back."""
    filled: int = 0
    """Positions before this have all the pages that they need, also those of sliding windows.
    Kept up to date where there are windows only."""
    block_keys: list[BlockKey] = field(default_factory=list)
    next_commit: int = 0
    """Length at which the next block is complete and gets its name."""
    sources: list[PageId] = field(default_factory=list)
    """After a fork: pages to be copied into the table's tail by the first chunk."""
    followers: list["SequenceState"] = field(default_factory=list)
    """Sequences that fork off when the prompt is computed; each holds the pages it will need."""
    running: bool = False
    in_flight: bool = False
    """A chunk of it is in the outstanding plan, or KV comes in: its pages are in use."""
    parked: bool = False
    """Its part of a prefill is done; it waits for the rest of its party."""
    preempted: bool = False
    passed: int = 0
    """So many have started before it while it waited for memory, though their turn was later."""
    ended: bool = False

    @property
    def outputs(self) -> int:
        """Output tokens so far, those of earlier attempts included."""
        return len(self.output)

    @property
    def newest(self) -> TokenId:
        """The last token."""
        return self.output[-1] if self.output else self.owner.request.prompt[-1]

    def tokens(self, start: int, end: int) -> tuple[TokenId, ...]:
        """Prompt and output in that range of positions."""
        prompt_len = self.prompt_len
        if end <= prompt_len:
            return self.owner.request.prompt[start:end]
        own = self.output[max(0, start - prompt_len) : end - prompt_len]
        return (*self.owner.request.prompt[start:], *own)

    def take(self, tokens: Sequence[TokenId]) -> None:
        """New output. Mutates."""
        self.output += tokens
        self.length += len(tokens)

    @property
    def coming(self) -> int:
        """KV of positions below it is here, or is believed to come from elsewhere; 0: none is.

        From the store come whole blocks, and never the last token: it is computed to go on from.
        """
        owner = self.owner
        if owner.adoption is not None:
            return self.length - 1
        size = owner.block_keys.block_tokens
        return min(owner.fetch, self.length - 1) // size * size

    @property
    def uncomputed(self) -> int:
        """Its tokens that are to be computed here before it decodes, the last one among them."""
        return self.length - max(self.computed, self.coming)

    @property
    def rank(self) -> Rank:
        """Its place in the order of service; unique."""
        request = self.owner.request
        owner, fresh = self.owner, not self.preempted
        due_at = urgency(request, owner.arrived_at)
        return (request.priority, fresh, due_at, owner.arrival, self.key.sequence)

    @property
    def expendable(self) -> tuple[int, int, int]:
        """Who gives way when memory runs out: the largest; unique."""
        return (self.owner.request.priority, self.owner.arrival, self.key.sequence)


def in_party_order(sequences: Iterable[SequenceState]) -> list[SequenceState]:
    """Who leads comes first: those without a token, who share the most, before all others."""
    return sorted(sequences, key=lambda one: one.resumed_len > 0)


def shared_tokens(sequence: SequenceState, block_tokens: int) -> int:
    """Tokens in the complete blocks of its prompt: what a party has in common."""
    return sequence.prompt_len // block_tokens * block_tokens


def follower_pages(follower: SequenceState, *, page_tokens: int, block_tokens: int) -> int:
    """Pages that a follower needs of its own, beside what the leader has."""
    if follower.resumed_len:
        own = follower.length - shared_tokens(follower, block_tokens)
    elif follower.owner.lease is not None:
        own = 0
    else:
        own = follower.prompt_len % block_tokens
    return -(-own // page_tokens)


def in_turn(started: Iterable[SequenceState]) -> list[SequenceState]:
    """The order in which prompts are computed, of sequences in the order in which they started.

    Class, then those that were preempted, then as they started: a tenant's turn is not taken from
    it by whoever starts later. What one tenant has started is in the order of its ranks.
    """
    slots = sorted(started, key=lambda one: one.rank[:2])
    lines: dict[tuple[int, bool, bytes], list[SequenceState]] = {}
    for one in slots:
        lines.setdefault(_line(one), []).append(one)
    if len(lines) == len(slots):
        return slots
    ranked = {line: iter(sorted(some, key=lambda one: one.rank)) for line, some in lines.items()}
    return [next(ranked[_line(one)]) for one in slots]


def _line(sequence: SequenceState) -> tuple[int, bool, bytes]:
    return (*sequence.rank[:2], sequence.owner.tenant)


def is_prefill(sequence: SequenceState) -> bool:
    """Whether more than one of its tokens is still to be computed, and here."""
    return sequence.length - sequence.computed > 1 and sequence.uncomputed > 1


def ending(sequence: SequenceState) -> FinishReason | None:
    """Why the sequence ends after its newest token, or None if it goes on.

    Before `min_tokens` output tokens neither end-of-sequence nor a stop id ends it.
    """
    owner, outputs = sequence.owner, sequence.outputs
    if outputs and owner.marks.end(sequence.newest, outputs):
        return FinishReason.STOP
    return FinishReason.LENGTH if outputs >= owner.max_tokens else None


def started_event(
    leader: SequenceState, now: Seconds, *, fetched: range = range(0), coming: range = range(0)
) -> Started:
    """A request's first chunk is about to run. `fetched`: positions that came from the store;
    `coming`: those that are still on their way, and count as if they were here."""
    owner, request = leader.owner, leader.owner.request
    cached = min(max(leader.computed, coming.stop), leader.prompt_len)
    fetched = fetched or coming
    return Started(
        request=request.id,
        attempt=request.attempt,
        cached_tokens=cached,
        queued_s=now - owner.arrived_at,
        stored_tokens=len(range(fetched.start, min(fetched.stop, cached))),
    )


def ended_event(sequence: SequenceState, reason: FinishReason, message: str = "") -> SequenceEnded:
    """The sequence's last event. A `LENGTH` that the request did not ask for says so."""
    owner, request = sequence.owner, sequence.owner.request
    if reason is FinishReason.LENGTH and owner.max_tokens != request.sampling.max_tokens:
        message = f"prompt and output reached {sequence.length} tokens, the limit here"
    return SequenceEnded(
        request=request.id,
        attempt=request.attempt,
        sequence=sequence.key.sequence,
        reason=reason,
        message=message,
    )
