"""KV on its way: pulled from a worker that offers it, or fetched from the store; what came of it.

Room for all of it is taken before the first page comes, so nobody waits while holding a part. What
did not come is computed here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isinf

from antiphon.errors import BugError
from antiphon.types import (
    Awaited,
    Fetch,
    Fetched,
    OfferedPage,
    PageId,
    Pull,
    Pulled,
    RequestId,
    SchedulerEvent,
    Seconds,
    StepResult,
)

from .adoption import Adoption
from .early_start import MOST_STALL_S, Arrival, PrefillPace, may_begin
from .roster import Roster
from .sequence import SequenceState, shared_tokens, started_event
from .sequence_memory import SequenceMemory


@dataclass(frozen=True, slots=True)
class _Part:
    """What comes for one sequence: so many pieces of its KV, in order, from position `start` on."""

    sequence: SequenceState
    start: int
    pieces: int
    whole: bool = False
    """What lies between was left out: it is of use only if all of it comes."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    good: tuple[bool, ...]
    problem: str
    took_s: Seconds


@dataclass(slots=True, eq=False)
class _Flight:
    order: Pull | Fetch
    parts: tuple[_Part, ...]
    piece_tokens: int
    """Tokens of a piece: a page that is pulled, a block that is fetched."""
    together: int = 1
    """So many pieces in a row hold these tokens together."""
    arrival: Arrival | None = None
    """How far it has come, if that is known."""
    tried: bool = False
    """A step was begun that awaits it."""
    stepping: bool = False
    """That step is outstanding."""
    outcome: _Outcome | None = None
    """It is over while that step is outstanding."""


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
        self.pace = PrefillPace()
        """How fast prompts are computed here."""
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
        memory, alone = self._memory, not leader.followers
        parts: list[_Part] = []
        sources: list[OfferedPage] = []
        targets: list[PageId] = []
        for one in (leader, *leader.followers):
            offered = adoption.sources.get(one.key.sequence, ())
            places = memory.lacking(one, one.length - 1, alone=alone) if offered else ()
            left_out = len(places) < len(offered) - memory.pages_for(one.computed)
            parts.append(_Part(one, one.computed, len(places), left_out))
            for place in places:
                page = offered[place]
                assert page is not None
                sources.append(page)
                targets.append(one.table[place])
        request = leader.owner.request
        pull = Pull(
            request=request.id,
            attempt=request.attempt,
            offer=adoption.offer,
            sources=tuple(sources),
            targets=tuple(targets),
        )
        self._pulls.append(pull)
        flight = _Flight(pull, tuple(parts), memory.page_tokens, memory.entry_pages)
        self._depart(leader, flight)

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
            position=blocks.start,
            due=self._due(leader),
            compute_s=self.pace.seconds(len(blocks) * size),
            back=() if leader.followers else self._memory.blocks_back(),
        )
        self._fetches.append(fetch)
        self._depart(leader, _Flight(fetch, (_Part(leader, leader.computed, len(blocks)),), size))

    def _due(self, leader: SequenceState) -> Seconds | None:
        """When a fetch of the leader's is to be here, so that computing the rest of the prompt ends
        in time; None: its first token has no target."""
        owner = leader.owner
        slo = owner.request.slo
        if slo is None or isinf(slo.ttft_s):
            return None
        rest_s = self.pace.seconds(leader.uncomputed) or 0.0
        return owner.arrived_at + slo.ttft_s - rest_s

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
        assert isinstance(flight.order, Pull)
        page_bytes = flight.order.offer.kv.page_bytes
        party = [part.sequence for part in flight.parts]
        owner = party[0].owner
        cached = self._tokens_here(party)
        self._count(flight, good)
        here = self._tokens_here(party)
        missing = sum(one.length - 1 - one.computed for one in party)
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
            moved_bytes=sum(good) * page_bytes,
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
        """Like `pulled`, block by block: the party starts now, and computes what did not come.

        If a step that awaits it is outstanding, all this is put off until that has ended.
        """
        flight = self._flight(Fetch, request, attempt, good)
        outcome = _Outcome(good, problem, took_s)
        if flight.stepping:
            flight.outcome = outcome
            return []
        return self._take_fetched(flight, outcome, now)

    def _take_fetched(
        self, flight: _Flight, outcome: _Outcome, now: Seconds
    ) -> list[SchedulerEvent]:
        assert isinstance(flight.order, Fetch)
        (part,) = flight.parts
        self._count(flight, outcome.good)
        if flight.order.back:  # nothing came for what no position from `computed` on reads
            self._memory.pass_by(part.sequence, part.sequence.computed)
            self._roster.promise_again(part.sequence.owner)
        came = part.sequence.computed - part.start
        leader = self._arrive(flight)
        if leader is None:
            return []
        self.fetched_tokens += came
        end = Fetched(
            request=flight.order.request,
            attempt=flight.order.attempt,
            fetched_tokens=came,
            missing_tokens=part.pieces * flight.piece_tokens - came,
            problem=outcome.problem,
            seconds=outcome.took_s,
        )
        if flight.tried:
            return [end]
        return [end, started_event(leader, now, fetched=range(part.start, part.start + came))]

    # ── a step that begins before all is here ────────────────────────────────────────────────

    def arriving(self, request: RequestId, attempt: int, arrival: Arrival) -> None:
        """How far a fetch has come. Of one that has ended it may still be said."""
        flight = self._flights.get((request, attempt))
        if flight is not None:
            flight.arrival = arrival

    def begin_early(
        self, step_s: Callable[[int], Seconds | None], budget: int, now: Seconds
    ) -> tuple[SequenceState, Awaited, SchedulerEvent] | None:
        """Who may be computed now, though its KV is still on its way; None: nobody.

        From then on the step that awaits it is outstanding, until `end_early`. `step_s`: how long
        a step of so many tokens takes. Each is tried once, and alone: a party is not.
        """
        for flight in self._flights.values():
            leader = flight.parts[0].sequence
            if flight.arrival is None or flight.tried or leader.ended or leader.followers:
                continue
            predicted_s = step_s(min(leader.uncomputed, budget))
            if predicted_s is None or not may_begin(flight.arrival, predicted_s):
                continue
            flight.tried = flight.stepping = True
            order = flight.order
            awaits = Awaited(request=order.request, attempt=order.attempt, wait_s=MOST_STALL_S)
            coming = range(leader.computed, leader.coming)
            return leader, awaits, started_event(leader, now, coming=coming)
        return None

    def end_early(
        self, awaits: Awaited, result: StepResult | None, now: Seconds
    ) -> tuple[bool, list[SchedulerEvent]]:
        """The step has ended (None: it failed). Whether what it computed counts, and what happened.

        It counts if all that it read has come and was proven. Otherwise it is as if it had not
        been begun: the request goes on from what has come, or is still on its way.

        Raises `BugError` if the engine says that it had all of the KV, and nobody else does.
        """
        flight = self._flights[awaits.request, awaits.attempt]
        flight.stepping = False
        whole = result is not None and not result.broken_off
        outcome, flight.outcome = flight.outcome, None
        if outcome is None:
            if whole:
                raise BugError(f"a step has read KV of {awaits.request} that is still on its way")
            return False, []
        leader = flight.parts[0].sequence
        events = self._take_fetched(flight, outcome, now)
        return whole and all(outcome.good) and leader.running, events

    def _flight(
        self, kind: type[Pull | Fetch], request: RequestId, attempt: int, good: tuple[bool, ...]
    ) -> _Flight:
        """The order that such an answer is for."""
        flight = self._flights.get((request, attempt))
        if (
            flight is None
            or not isinstance(flight.order, kind)
            or flight.outcome is not None
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
            if part.whole:
                self._count_whole(part, mine)
                continue
            whole = mine.index(False) if False in mine else len(mine)
            whole //= flight.together
            if whole:
                one = part.sequence
                reach = part.start + whole * flight.piece_tokens
                one.computed = min(reach, one.length - 1)

    def _count_whole(self, part: _Part, good: tuple[bool, ...]) -> None:
        """The pages that nothing came for are given back; or all is computed, in these, too."""
        one = part.sequence
        if all(good):
            one.computed = one.length - 1
            self._memory.pass_by(one, one.computed)

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
