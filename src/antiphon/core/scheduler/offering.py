"""Prompts that are computed for others: when a party is done, its KV goes under a lease."""

from antiphon.core.handover import LeaseBook
from antiphon.types import OfferedSequence, Prefilled, Seconds

from .roster import Roster
from .sequence import RequestState
from .sequence_memory import SequenceMemory


class Offering:
    """Turns parties whose prefill is done into leases."""

    def __init__(self, roster: Roster, memory: SequenceMemory, leases: LeaseBook) -> None:
        self._roster = roster
        self._memory = memory
        self._leases = leases

    def ready(self) -> list[RequestState]:
        """Parties that can be offered: all that is left of them is parked."""
        return [
            state
            for state in self._roster.prefills.values()
            if all(one.parked for one in state.alive)
        ]

    def take_ready(self, now: Seconds) -> list[Prefilled]:
        """Offer what is done: roster and engine forget it, and the lease owns its pages.

        The caller says it at once: a lease lives from here on, and may end any time.
        """
        if not self._roster.prefills:
            return []
        return [self._offer(state, now) for state in self.ready()]

    def _offer(self, state: RequestState, now: Seconds) -> Prefilled:
        request, lease = state.request, state.lease
        assert lease is not None
        if len(state.alive) == 1:  # several share pages, and each is taken whole
            (alone,) = state.alive
            self._memory.pass_by(alone, alone.length - 1)
        sequences = tuple(
            OfferedSequence(one.key.sequence, one.length - 1, tuple(one.table))
            for one in state.alive
        )
        references = self._roster.offer(state, now)
        self._leases.offer(lease, request.id, request.attempt, references, now)
        return Prefilled(
            request=request.id, attempt=request.attempt, lease=lease, sequences=sequences
        )
