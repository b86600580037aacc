"""Who of those that wait starts in the next step: in order, until one has to wait.

Whoever needs more memory than there will be is passed by those behind who need less, but so many
times only: then all behind wait, and it is served as those that run end. (EASY backfilling, Lifka
1995, lets pass who does not delay the head. How long answers are nobody knows here: so passing is
counted.)
"""

from dataclasses import dataclass, field

from antiphon.core.handover import LeaseBook
from antiphon.core.kv import Match
from antiphon.errors import BugError
from antiphon.types import NO_PAGE, SchedulerEvent, Seconds, SequenceKey

from .admission import Admission, Crowd, DeferReason, Deferred
from .receiving import Receiving
from .roster import Roster
from .sequence import SequenceState, started_event
from .sequence_memory import SequenceMemory

MOST_PASSED = 8
"""So often one that waits for memory is passed: each time, memory goes to another for as long as
that runs."""
_LOOK = 4
"""So many that would need too much memory are looked at in a row."""


@dataclass(slots=True)
class _Passing:
    """Whom those behind pass, for what it waits for is not theirs to take.

    Prefills that wait for room to offer, by those that offer nothing: it is room that takers make,
    and a taker may wait for what is behind them. Tenants that leave room to others, by these
    others within their class: it is the room that is left to them. And whoever needs more memory
    than there will be, by those of its class and better ones who need less, `MOST_PASSED` times.
    """

    crowd: Crowd
    offers: bool = False
    reserved_in: int | None = None
    """The class in which room was left."""
    large: dict[SequenceKey, SequenceState] = field(default_factory=dict)
    """Those who need too much memory, in order."""

    def __bool__(self) -> bool:
        """Whether somebody is passed, so that who comes last may be next."""
        return self.offers or self.reserved_in is not None or bool(self.large)

    def begin(self, head: SequenceState, reason: DeferReason) -> bool:
        """May somebody behind this one go on, which is deferred? Mutates."""
        if reason is DeferReason.OFFERS:
            self.offers = True
        elif reason is DeferReason.RESERVED:
            self.reserved_in = head.owner.request.priority
        elif reason is DeferReason.PEAK and not head.preempted:
            if len(self.large) == _LOOK or head.passed >= MOST_PASSED:
                return False
            self.large[head.key] = head
        else:
            return False
        return True

    def started(self) -> None:
        """Somebody has. Mutates: it has passed all that wait for memory."""
        for one in self.large.values():
            one.passed += 1

    def may_start(self, one: SequenceState) -> bool:
        """Is it not among those that are passed?"""
        if self.offers and one.owner.lease is not None:
            return False
        if self.large and not self._may_pass(one):
            return False
        if self.reserved_in is None:
            return True
        within = one.owner.request.priority <= self.reserved_in
        return within and (one.preempted or not self.crowd.has_most(one))

    def _may_pass(self, one: SequenceState) -> bool:
        """Of those that need too much memory none has been passed too often, or is better."""
        if one.key in self.large:
            return False
        priority = one.owner.request.priority
        return all(
            other.passed < MOST_PASSED and priority <= other.owner.request.priority
            for other in self.large.values()
        )


class Starting:
    """Reserves memory for the head of the queue and lets it run, or receive, while there is room.

    `queried_tokens` and `hit_tokens` count what the prefix cache was asked for, and had.
    """

    def __init__(
        self,
        roster: Roster,
        memory: SequenceMemory,
        admission: Admission,
        leases: LeaseBook,
        receiving: Receiving,
    ) -> None:
        self._roster = roster
        self._memory = memory
        self._admission = admission
        self._leases = leases
        self._receiving = receiving
        self.queried_tokens = self.hit_tokens = 0

    def run(self, now: Seconds, events: list[SchedulerEvent]) -> Deferred | None:
        """Start whoever can; returns why the first of the others has to wait."""
        roster = self._roster
        crowd = Crowd(worst_pages=len(self._leases.pages))
        for sequence in roster.present():
            crowd.join(sequence)
        first: Deferred | None = None
        passing = _Passing(crowd)
        while (head := self._next(passing)) is not None:
            deferred = self._admission.crowded(head, crowd) or self._take_pages(head, crowd)
            if deferred is None:
                self._start(head, now, events)
                crowd.join(head)
                passing.started()
                continue
            first = first or deferred
            if not passing.begin(head, deferred.reason):
                roster.changed = deferred.reason is DeferReason.BUDGET
                break
        else:
            roster.changed = False
        roster.passing = bool(passing)
        return first

    def _next(self, passing: _Passing) -> SequenceState | None:
        queue = self._roster.queue
        return next(filter(passing.may_start, queue), None) if passing else queue.head

    def _start(self, head: SequenceState, now: Seconds, events: list[SchedulerEvent]) -> None:
        """It has its pages: count what it found, and let it run unless KV of it is elsewhere."""
        owner = head.owner
        fresh, owner.started = not owner.started, True
        if fresh:
            self._roster.fresh -= 1
            if owner.adoption is None:
                self.queried_tokens += head.length
                self.hit_tokens += head.computed
        if self._receiving.begin(head):
            return
        self._roster.start(head)
        if fresh:
            events.append(started_event(head, now))

    def _take_pages(self, head: SequenceState, crowd: Crowd) -> Deferred | None:
        """Reserve what the head of the queue needs, or say why it has to wait."""
        present = self._roster.present()
        match = self._memory.match(head)
        if head.owner.lease is None:
            deferred = self._admission.short_of_memory(head, match, present, crowd)
        else:
            deferred = self._short_for_offer(head, match)
        short = self._memory.start(head, match) if deferred is None else None
        if short is None:
            return deferred
        message = f"{short.needed} pages are needed and {short.available} are available"
        if not present and not self._leases:
            raise BugError(f"{message}, yet nothing runs")
        return Deferred(DeferReason.PAGES, message)

    def _short_for_offer(self, head: SequenceState, match: Match) -> Deferred | None:
        offered, promised = self._leases.pages, self._roster.promised
        held = (page for page in match.pages if page != NO_PAGE)
        more = sum(page not in offered and page not in promised for page in held)
        new = self._memory.party_pages(head) - len(match.pages)
        return self._admission.short_for_offer(
            new, len(offered) + len(promised) + more, match.idle_pages, self._roster.present()
        )
