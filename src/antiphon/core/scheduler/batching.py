"""Which tokens are computed in the next step: all decodes, then prefills while the budget lasts."""

from collections.abc import Collection
from dataclasses import dataclass, field

from antiphon.types import Awaited, Chunk, PageCopy, RequestId, SequenceKey, StepPlan

from .sequence import SequenceState, in_turn
from .sequence_memory import SequenceMemory


@dataclass(slots=True)
class Flight:
    """The outstanding plan and whom it belongs to."""

    plan: StepPlan
    computing: list[SequenceState]
    """Owner of each chunk of the plan, in the plan's order."""
    sampling: dict[tuple[RequestId, int], SequenceState]
    """Every sequence that gets a token."""
    tokens: int
    """Tokens that are computed."""


@dataclass(slots=True)
class _Draft:
    chunks: list[Chunk] = field(default_factory=list)
    copies: list[PageCopy] = field(default_factory=list)
    computing: list[SequenceState] = field(default_factory=list)
    sampling: dict[tuple[RequestId, int], SequenceState] = field(default_factory=dict)


def batch(
    running: Collection[SequenceState],
    memory: SequenceMemory,
    *,
    number: int,
    budget: int,
    ended: tuple[SequenceKey, ...],
    awaits: Awaited | None = None,
    repeat: int = 1,
) -> Flight | None:
    """The next plan, or None if nothing runs. Every running sequence has room for its next token.

    A sequence whose KV is on its way is computed from where that will end: see `Awaited`. Never
    exceeds `budget` tokens; there are never more decodes than that. Prefills go in order of
    service. `repeat`: see `StepPlan`; then all that run decode, and have room for it. Marks what is
    in flight, and which table entries the engine knows from then on.
    """
    draft = _Draft()
    prefills: list[SequenceState] = []
    for sequence in running:
        if sequence.length - sequence.computed == 1:
            _decode(draft, sequence, memory)
        else:
            prefills.append(sequence)
    left = budget - len(draft.chunks)
    for sequence in in_turn(prefills):
        if not left:
            break
        left -= _prefill(draft, sequence, memory, left)
    if not draft.chunks:
        return None
    plan = StepPlan(
        number=number,
        chunks=tuple(draft.chunks),
        copies=tuple(draft.copies),
        ended=ended,
        awaits=awaits,
        repeat=repeat,
    )
    return Flight(plan, draft.computing, draft.sampling, tokens=budget - left)


def prefills_first(running: Collection[SequenceState]) -> Collection[SequenceState]:
    """Those whose prompts are being computed; if there is none, all.

    In steps of these decodes wait for prompts, as in vLLM before chunked prefill.
    """
    prefills = [one for one in running if one.length - one.computed > 1]
    return prefills or running


def _decode(draft: _Draft, sequence: SequenceState, memory: SequenceMemory) -> None:
    """Add the chunk of one token. A lone uncomputed prompt token passes here too."""
    key, table, sent = sequence.key, sequence.table, sequence.sent
    if sequence.followers:
        _prefill(draft, sequence, memory, 1)
        return
    known = len(table)
    draft.chunks.append(
        Chunk(
            request=sequence.owner.request,
            sequence=key.sequence,
            tokens=(sequence.newest,),
            start=sequence.computed,
            page_start=sent,
            new_pages=tuple(table[sent:]) if sent != known else (),
            samples=(key.sequence,),
            index=sequence.outputs,
        )
    )
    if sequence.sources:
        draft.copies += memory.copies(sequence)
    sequence.sent = known
    sequence.in_flight = True
    draft.computing.append(sequence)
    draft.sampling[key] = sequence


def _prefill(draft: _Draft, sequence: SequenceState, memory: SequenceMemory, budget: int) -> int:
    """Add a chunk of at most `budget` tokens; returns how many it has."""
    start = max(sequence.computed, sequence.coming)
    tokens = sequence.tokens(start, min(start + budget, sequence.length))
    known = memory.known_pages(sequence, start + len(tokens))
    sampled: list[SequenceState] = []
    if start + len(tokens) == sequence.length:
        sampled = [sequence, *(one for one in sequence.followers if not one.resumed_len)]
    draft.chunks.append(
        Chunk(
            request=sequence.owner.request,
            sequence=sequence.key.sequence,
            tokens=tokens,
            start=start,
            page_start=sequence.sent,
            new_pages=tuple(sequence.table[sequence.sent : known]),
            samples=tuple(one.key.sequence for one in sampled),
            index=sequence.outputs,
        )
    )
    sequence.sent = known
    sequence.in_flight = True
    draft.computing.append(sequence)
    for one in sampled:
        draft.sampling[one.key] = one
    return len(tokens)
