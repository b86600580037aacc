"""How often a step of decodes may be run in a row, because nothing changes meanwhile.

The simulator runs such a step as one event. Whoever runs it stops at the first end of a sequence,
and when anybody says anything: so the decisions are those of as many single steps.
"""

from .roster import Roster
from .sequence import SequenceState
from .sequence_memory import SequenceMemory


class Repeating:
    """Finds how many steps in a row, at most `most`, and takes the pages that they grow into."""

    def __init__(self, roster: Roster, memory: SequenceMemory, most: int) -> None:
        self._roster = roster
        self._memory = memory
        self._most = most

    def steps(self) -> int:
        """At least 1. Mutates: what runs has room for so many tokens more, each.

        Where memory is short it is what there is room for. Called when it is decided who runs.
        """
        running = self._roster.running.values()
        if self._most == 1 or self._roster.changed or not all(map(_only_decodes, running)):
            return 1
        most = min((one.owner.max_tokens - one.outputs for one in running), default=1)
        steps = min(self._most, most)
        room = min((one.capacity - one.computed for one in running), default=1)
        if steps > room and self._memory.grow_ahead(running, steps) is not None:
            steps = room
        return max(1, steps)


def _only_decodes(sequence: SequenceState) -> bool:
    """It gets a token in each step, as it did before, and nothing else is to be said of it."""
    return (
        sequence.length - sequence.computed == 1
        and sequence.outputs > sequence.resumed_len
        and not (sequence.followers or sequence.sources or sequence.ended)
        and sequence.owner.lease is None
        and sequence.owner.request.sampling.logprobs is None
    )
