"""Who of those that wait starts in the next step: in order, until one has to wait."""

from antiphon.core.handover import LeaseBook
from antiphon.core.kv import Match
from antiphon.errors import BugError
from antiphon.types import SchedulerEvent, Seconds

from .admission import Admission, Crowd, DeferReason, Deferred
from .receiving import Receiving
from .roster import Roster
from .sequence import SequenceState, started_event
from .sequence_memory import SequenceMemory


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
        """Start whoever can; returns why the first of the others has to wait.

        Prefills that wait for room to offer are passed by those that offer nothing: it is room
        that takers make, and a taker may wait for what is behind them.
        """
        roster = self._roster
        crowd = Crowd(worst_pages=len(self._leases.pages))
        for sequence in roster.present():
            crowd.join(sequence)
        first: Deferred | None = None
        while (
            head := roster.queue.head if first is None else roster.queue.head_to_keep
        ) is not None:
            deferred = self._admission.crowded(head, crowd) or self._take_pages(head, crowd)
            if deferred is None:
                self._start(head, now, events)
                crowd.join(head)
                continue
            first = first or deferred
            if deferred.reason is not DeferReason.OFFERS:
                roster.changed = deferred.reason is DeferReason.BUDGET
                return first
        roster.changed = False
        return first

    def _start(self, head: SequenceState, now: Seconds, events: list[SchedulerEvent]) -> None:
        """It has its pages: count what it found, and let it run unless KV of it is elsewhere."""
        owner = head.owner
        fresh, owner.started = not owner.started, True
        if fresh:
            self._roster.fresh -= 1
            if owner.adoption is None:
                self.queried_tokens += len(head.tokens)
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
        more = sum(page not in offered and page not in promised for page in match.pages)
        new = self._memory.party_pages(head) - len(match.pages)
        return self._admission.short_for_offer(
            new, len(offered) + len(promised) + more, match.idle_pages, self._roster.present()
        )
