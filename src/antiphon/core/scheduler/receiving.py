"""KV on its way: pulled from a worker that offers it, or fetched from the store; what came of it.

Room for all of it is taken before the first page comes, so nobody waits while holding a part. What
did not come is computed here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from antiphon.errors import BugError
from antiphon.types import (
    Fetch,
    Fetched,
    PagePull,
    Pull,
    Pulled,
    RequestId,
    SchedulerEvent,
    Seconds,
)

from .adoption import Adoption
from .roster import Roster
from .sequence import SequenceState, shared_tokens, started_event
from .sequence_memory import SequenceMemory


@dataclass(frozen=True, slots=True)
class _Part:
    """What comes for one sequence: so many pieces of its KV, in order, from position `start` on."""

    sequence: SequenceState
    start: int
    pieces: int


@dataclass(frozen=True, slots=True)
class _Flight:
    order: Pull | Fetch
    parts: tuple[_Part, ...]
    piece_tokens: int
    """Tokens of a piece: a page that is pulled, a block that is fetched."""


class Receiving:
    """Orders what a party that has room lacks and others have, and takes what came of it.

    A party has one order at a time, and what is fetched is for its leader: the others share it.
    """

    def __init__(self, roster: Roster, memory: SequenceMemory) -> None:
        self._roster = roster
        self._memory = memory
        self._flights: dict[tuple[RequestId, int], _Flight] = {}
        self._pulls: list[Pull] = []
        self._fetches: list[Fetch] = []
        self.fetched_tokens = 0
        """Tokens that came from the store so far."""

    # ── orders ───────────────────────────────────────────────────────────────────────────────

    def begin(self, leader: SequenceState) -> bool:
        """Whether KV of this party is elsewhere and not here; then it is on its way.

        The party has its pages, and leaves the queue if so.
        """
        if leader.owner.adoption is not None:
            self._begin_pull(leader, leader.owner.adoption)
            return True
        if leader.coming > leader.computed:
            self._begin_fetch(leader)
            return True
        leader.owner.fetch = 0
        return False

    def take_pulls(self) -> list[Pull]:
        """Pulls that were begun since this was last asked."""
        new, self._pulls = self._pulls, []
        return new

    def take_fetches(self) -> list[Fetch]:
        """Fetches that were begun since this was last asked."""
        new, self._fetches = self._fetches, []
        return new

    def _begin_pull(self, leader: SequenceState, adoption: Adoption) -> None:
        size = self._memory.page_tokens
        parts: list[_Part] = []
        pages: list[PagePull] = []
        for one in (leader, *leader.followers):
            first = one.computed // size
            sources = adoption.sources.get(one.key.sequence, ())[first:]
            parts.append(_Part(one, one.computed, len(sources)))
            targets = one.table[first : first + len(sources)]
            pages += (PagePull(*pair) for pair in zip(sources, targets, strict=True))
        request = leader.owner.request
        pull = Pull(
            request=request.id, attempt=request.attempt, offer=adoption.offer, pages=tuple(pages)
        )
        self._pulls.append(pull)
        self._depart(leader, _Flight(pull, tuple(parts), size))

    def _begin_fetch(self, leader: SequenceState) -> None:
        size, per_block = self._memory.block_tokens, self._memory.pool.pages_per_block
        request, table = leader.owner.request, leader.table
        blocks = range(leader.computed // size, leader.coming // size)
        fetch = Fetch(
            request=request.id,
            attempt=request.attempt,
            keys=tuple(leader.block_keys[blocks.start : blocks.stop]),
            targets=tuple(
                tuple(table[block * per_block : (block + 1) * per_block]) for block in blocks
            ),
            tenant=leader.owner.tenant,
        )
        self._fetches.append(fetch)
        self._depart(leader, _Flight(fetch, (_Part(leader, leader.computed, len(blocks)),), size))

    def _depart(self, leader: SequenceState, flight: _Flight) -> None:
        self._roster.receive(leader)
        self._flights[flight.order.request, flight.order.attempt] = flight

    # ── what came ────────────────────────────────────────────────────────────────────────────

    def pulled(
        self,
        request: RequestId,
        attempt: int,
        good: tuple[bool, ...],
        problem: str,
        took_s: Seconds,
    ) -> Pulled | None:
        """The pages are here, but for those that are not `good`; None: nobody waits for them.

        Counts as computed what is whole up to the first bad page; the party runs from there. Raises
        `BugError` if no such pull is under way or `good` does not answer it.
        """
        flight = self._flight(Pull, request, attempt, good)
        party = [part.sequence for part in flight.parts]
        owner = party[0].owner
        cached = self._tokens_here(party)
        self._count(flight, good)
        here = self._tokens_here(party)
        missing = sum(len(one.tokens) - 1 - one.computed for one in party)
        said = problem or (owner.adoption.problem if owner.adoption is not None else "")
        if self._arrive(flight) is None:
            return None
        return Pulled(
            request=request,
            attempt=attempt,
            pulled_tokens=here - cached,
            cached_tokens=cached,
            missing_tokens=missing,
            problem=said,
            seconds=took_s,
        )

    def fetched(
        self,
        request: RequestId,
        attempt: int,
        good: tuple[bool, ...],
        problem: str,
        took_s: Seconds,
        now: Seconds,
    ) -> list[SchedulerEvent]:
        """Like `pulled`, block by block: the party starts now, and computes what did not come."""
        flight = self._flight(Fetch, request, attempt, good)
        (part,) = flight.parts
        self._count(flight, good)
        came = part.sequence.computed - part.start
        leader = self._arrive(flight)
        if leader is None:
            return []
        self.fetched_tokens += came
        end = Fetched(
            request=request,
            attempt=attempt,
            fetched_tokens=came,
            missing_tokens=part.pieces * flight.piece_tokens - came,
            problem=problem,
            seconds=took_s,
        )
        return [end, started_event(leader, now, fetched=range(part.start, part.start + came))]

    def _flight(
        self, kind: type[Pull | Fetch], request: RequestId, attempt: int, good: tuple[bool, ...]
    ) -> _Flight:
        """The order that such an answer is for."""
        flight = self._flights.get((request, attempt))
        if (
            flight is None
            or not isinstance(flight.order, kind)
            or len(good) != sum(part.pieces for part in flight.parts)
        ):
            name = kind.__name__.lower()
            raise BugError(f"a {name} of {request}, attempt {attempt}, ends but is not under way")
        return flight

    def _tokens_here(self, party: Iterable[SequenceState]) -> int:
        """Tokens whose KV is here, those that all share counted once."""
        leader, *followers = party
        shared = shared_tokens(leader, self._memory.block_tokens)
        return leader.computed + sum(one.computed - shared for one in followers)

    def _count(self, flight: _Flight, good: tuple[bool, ...]) -> None:
        """What is whole up to each sequence's first bad piece is computed now."""
        begin = 0
        for part in flight.parts:
            mine = good[begin : begin + part.pieces]
            begin += part.pieces
            whole = mine.index(False) if False in mine else len(mine)
            if whole:
                one = part.sequence
                reach = part.start + whole * flight.piece_tokens
                one.computed = min(reach, len(one.tokens) - 1)

    def _arrive(self, flight: _Flight) -> SequenceState | None:
        """Nothing is written any more: the party runs. Returns who leads it now; None: nobody."""
        order = flight.order
        del self._flights[order.request, order.attempt]
        owner = flight.parts[0].sequence.owner
        owner.adoption, owner.fetch = None, 0
        leader = self._roster.received(order.request, order.attempt)
        if leader is not None:
            self._go_on(leader)
        return leader

    def _go_on(self, leader: SequenceState) -> None:
        """Name what is complete; if the leader has all that is shared, nobody waits for it.

        But those without a token do: they share its next one.
        """
        party = [leader]
        shared = shared_tokens(leader, self._memory.block_tokens)
        if leader.resumed_len and leader.computed >= shared:
            party += leader.followers
            self._roster.fork(leader)
        for one in party:
            if one.computed >= one.next_commit:
                self._memory.commit(one)
