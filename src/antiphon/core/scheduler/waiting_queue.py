"""Who is served next: class, then preempted ones, then tenants in turn, then urgency, arrival.

Whoever can't start holds up all behind, but for those whom `starting` lets pass. So a tenant that
sends far more than others fills this queue with its own, and those of others go before them as they
come: each waits for what its own tenant had here, and of every other one for about a step's tokens
and its largest prompt.
"""

from collections.abc import Iterator

from antiphon.core.turns import PriorityClass, Tenant, TenantRounds, Waiting
from antiphon.core.urgency import urgency
from antiphon.errors import BugError
from antiphon.types import SequenceKey

from .sequence import SequenceState


class WaitingQueue:
    """Sequences in order of service. Tenants of a class start `quantum_tokens` in turn."""

    def __init__(self, quantum_tokens: int, rounds: type[TenantRounds] = TenantRounds) -> None:
        self._quantum, self._rounds = quantum_tokens, rounds
        self._classes: dict[int, PriorityClass[SequenceKey]] = {}
        """Also those in which nobody waits now: what their tenants owe stays."""
        self._waiting: dict[SequenceKey, SequenceState] = {}

    @property
    def head(self) -> SequenceState | None:
        """Who is served next."""
        priority = min((one for one, own in self._classes.items() if own), default=None)
        one = None if priority is None else self._classes[priority].head()
        return None if one is None else self._waiting[one.id]

    def __iter__(self) -> Iterator[SequenceState]:
        """All that wait, in order of service, as if nobody came meanwhile."""
        if not self._waiting:
            return
        for priority in sorted(self._classes):
            for one in self._classes[priority].order():
                yield self._waiting[one.id]

    def push(self, sequence: SequenceState) -> int:
        """Take a place; returns how many are ahead, about. Mutates."""
        if sequence.key in self._waiting:
            raise BugError(f"{sequence.key} waits already")
        self._waiting[sequence.key] = sequence
        priority = sequence.owner.request.priority
        own = self._classes.get(priority)
        if own is None:
            own = self._classes[priority] = PriorityClass(self._rounds(self._quantum))
        one, tenant = _waiting(sequence), _tenant(sequence)
        own.put(one, tenant)
        before = (others for other, others in self._classes.items() if other < priority)
        return own.place(one, tenant) + sum(others.total()[0] for others in before)

    def start(self, sequence: SequenceState) -> None:
        """Take out one that waits: it is served. Mutates: counts it as its tenant's."""
        tenant = _tenant(sequence)
        if tenant is not None and sequence.key in self._waiting:
            cost = _waiting(sequence).cost
            self._classes[sequence.owner.request.priority].rounds.serve(tenant, cost)
        self.remove(sequence)

    def remove(self, sequence: SequenceState) -> None:
        """Take out one that waits. Mutates."""
        if self._waiting.pop(sequence.key, None) is None:
            raise BugError(f"{sequence.key} does not wait")
        own = self._classes[sequence.owner.request.priority]
        own.remove(_waiting(sequence), _tenant(sequence))


def _tenant(sequence: SequenceState) -> Tenant | None:
    """None: it was served before, and goes first."""
    return None if sequence.preempted else sequence.owner.tenant


def _waiting(sequence: SequenceState) -> Waiting[SequenceKey]:
    """Its place in its line: does not change while it waits."""
    owner, tokens = sequence.owner, sequence.length
    due_at = urgency(owner.request, owner.arrived_at)
    return Waiting(due_at, owner.arrival, sequence.key, tokens, tokens)
