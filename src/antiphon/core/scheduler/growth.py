"""Room for every decode's next token: at the cost of others, if memory ran out unforeseen."""

from antiphon.types import Preempted, SchedulerEvent

from .roster import Roster
from .sequence_memory import SequenceMemory


class Growth:
    """Gives running sequences the pages that they grow into."""

    def __init__(self, roster: Roster, memory: SequenceMemory) -> None:
        self._roster = roster
        self._memory = memory
        self.preemptions = 0

    def run(self, events: list[SchedulerEvent]) -> bool:
        """Whether others had to give way, and wait again.

        Prefills for others need not: they have all that they need, and end soon.
        """
        running = self._roster.running
        preempted = False
        while True:
            if self._memory.make_room(running.values()) is None:
                return preempted
            growing = (one for one in running.values() if one.owner.lease is None)
            largest = max(growing, key=lambda one: one.expendable)
            self._roster.preempt(largest)
            self.preemptions += 1
            preempted = True
            request, index = largest.owner.request, largest.key.sequence
            events.append(Preempted(request=request.id, attempt=request.attempt, sequence=index))
