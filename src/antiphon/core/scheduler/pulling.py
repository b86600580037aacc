"""KV on its way: what is to be pulled for an adopted party, and what came of it.

Room for all of it is taken before the first page is pulled, so nobody waits while holding a part.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from antiphon.errors import BugError
from antiphon.types import PagePull, Pull, Pulled, RequestId, Seconds

from .roster import Roster
from .sequence import SequenceState, shared_tokens
from .sequence_memory import SequenceMemory


@dataclass(frozen=True, slots=True)
class _Part:
    """The pages of one sequence that are pulled: its table's entries from `first` on."""

    sequence: SequenceState
    first: int
    pages: int


@dataclass(frozen=True, slots=True)
class _Flight:
    pull: Pull
    parts: tuple[_Part, ...]
    cached_tokens: int


class Pulling:
    """Makes a `Pull` of each adopted party that has room, and takes its outcome."""

    def __init__(self, roster: Roster, memory: SequenceMemory) -> None:
        self._roster = roster
        self._memory = memory
        self._flights: dict[tuple[RequestId, int], _Flight] = {}
        self._new: list[Pull] = []

    def begin(self, leader: SequenceState) -> None:
        """The head of the queue has its pages: fill them with what is offered and not here."""
        adoption, request = leader.owner.adoption, leader.owner.request
        assert adoption is not None
        parts: list[_Part] = []
        pages: list[PagePull] = []
        for one in (leader, *leader.followers):
            sources = adoption.sources.get(one.key.sequence, ())
            first = one.computed // self._memory.page_tokens
            part = sources[first:]
            parts.append(_Part(one, first, len(part)))
            targets = one.table[first : first + len(part)]
            pages += (PagePull(*pair) for pair in zip(part, targets, strict=True))
        cached = self._tokens_here(part.sequence for part in parts)
        pull = Pull(
            request=request.id,
            attempt=request.attempt,
            offer=adoption.offer,
            pages=tuple(pages),
        )
        self._roster.pull(leader)
        self._flights[request.id, request.attempt] = _Flight(pull, tuple(parts), cached)
        self._new.append(pull)

    def take_new(self) -> list[Pull]:
        """Pulls that were begun since this was last asked."""
        new, self._new = self._new, []
        return new

    def end(
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
        flight = self._flights.get((request, attempt))
        if flight is None or len(good) != len(flight.pull.pages):
            raise BugError(f"a pull of {request}, attempt {attempt}, ends but is not under way")
        del self._flights[request, attempt]
        party = self._roster.pulling.pop((request, attempt))
        self._count(flight, good)
        here = self._tokens_here(party)
        missing = sum(len(one.tokens) - 1 - one.computed for one in party)
        owner = party[0].owner
        said = problem or (owner.adoption.problem if owner.adoption is not None else "")
        owner.adoption = None
        leader = self._roster.pulled(party)
        if leader is None:
            return None
        self._go_on(leader)
        return Pulled(
            request=request,
            attempt=attempt,
            pulled_tokens=here - flight.cached_tokens,
            cached_tokens=flight.cached_tokens,
            missing_tokens=missing,
            problem=said,
            seconds=took_s,
        )

    def _tokens_here(self, party: Iterable[SequenceState]) -> int:
        """Tokens whose KV is here, those that all share counted once."""
        leader, *followers = party
        shared = shared_tokens(leader, self._memory.block_tokens)
        return leader.computed + sum(one.computed - shared for one in followers)

    def _count(self, flight: _Flight, good: tuple[bool, ...]) -> None:
        """What is whole up to each sequence's first bad page is computed now."""
        begin = 0
        for part in flight.parts:
            mine = good[begin : begin + part.pages]
            begin += part.pages
            whole = mine.index(False) if False in mine else len(mine)
            if whole:
                one = part.sequence
                reach = (part.first + whole) * self._memory.page_tokens
                one.computed = min(reach, len(one.tokens) - 1)

    def _go_on(self, leader: SequenceState) -> None:
        """Name what is complete; if the leader has all that is shared, nobody waits for it."""
        party = [leader]
        if leader.computed >= shared_tokens(leader, self._memory.block_tokens):
            party += leader.followers
            self._roster.fork(leader)
        for one in party:
            if one.computed >= one.next_commit:
                self._memory.commit(one)
