"""Who waits and who runs: every move of a sequence between the states of `sequence.py`.

A sequence ends at once, but if a chunk of it is in the outstanding plan it keeps its place and
its pages until the step completes.
"""

from collections.abc import Iterable

from antiphon.core.deadlines import Deadlines
from antiphon.types import RequestId, Seconds, SequenceKey

from .history import History
from .sequence import RequestState, SequenceState
from .sequence_memory import SequenceMemory
from .waiting_queue import WaitingQueue


class Roster:
    """All requests that have not ended, by state. Decides nothing."""

    def __init__(self, memory: SequenceMemory, history: History) -> None:
        self._memory = memory
        self._history = history
        self.requests: dict[RequestId, RequestState] = {}
        self.deadlines = Deadlines()
        self.running: dict[SequenceKey, SequenceState] = {}
        """In the order in which they started."""
        self.queue = WaitingQueue()
        self.fresh = 0
        """Requests that have not started."""
        self.forgotten: list[SequenceKey] = []
        """Ended since the last plan, and perhaps known to the engine."""
        self.changed = True
        """Whether the head of the queue or what runs has changed since this was last cleared."""

    @property
    def running_requests(self) -> int:
        """Requests of which something runs."""
        return len({one.key.request for one in self.running.values() if not one.ended})

    def starting(self, places: int) -> tuple[int, int]:
        """Of the requests that have not started, how many from the head on `places` are enough for.

        The second number is how many places then are left; none if somebody waits for one.
        """
        starting: set[RequestId] = set()
        for sequence in self.queue:
            wanted = 1 + len(sequence.followers)
            if wanted > places:
                return len(starting), 0
            places -= wanted
            if not sequence.owner.started:
                starting.add(sequence.key.request)
        return len(starting), places

    def take(self, state: RequestState) -> None:
        """A new request is here. Until `enter` its sequences neither wait nor run."""
        request = state.request
        self.requests[request.id] = state
        self.fresh += 1
        if request.deadline is not None:
            self.deadlines.add(request.id, request.deadline)

    def enter(self, state: RequestState) -> int:
        """Let the living sequences of a new request wait; returns how many wait ahead.

        Those without a token share the work on the prompt: the first leads the others.
        """
        fresh = [one for one in state.alive if not one.outputs]
        if fresh:
            fresh[0].followers = fresh[1:]
        waiting = [one for one in state.alive if one not in fresh[1:]]
        places = [self.queue.push(one) for one in waiting]
        self.changed = self.changed or 0 in places
        return min(places)

    def start(self, sequence: SequenceState) -> None:
        """From the head of the queue to the running ones; its memory is taken already."""
        self.queue.pop()
        self.running[sequence.key] = sequence
        sequence.running = True

    def preempt(self, sequence: SequenceState) -> None:
        """Give its pages back and let it wait at the front of its class."""
        self._stop_running(sequence)
        for one in (sequence, *sequence.followers):
            self._memory.release(one)
        sequence.preempted = True
        self.queue.push(sequence)
        self.changed = True

    def fork(self, leader: SequenceState) -> None:
        """The prompt is computed: each follower that goes on runs on its own from here."""
        for follower in leader.followers:
            if follower.ended:
                self._memory.release(follower)
                continue
            self._memory.fork(leader, follower)
            self.running[follower.key] = follower
            follower.running = True
        leader.followers = []
        self.changed = True

    def end(self, ends: Iterable[SequenceState], now: Seconds) -> None:
        """These sequences end now. Those in flight leave with `leave` when the step completes."""
        for sequence in ends:
            self.mark_ended(sequence, now)
            if not sequence.in_flight:
                self.leave(sequence)

    def mark_ended(self, sequence: SequenceState, now: Seconds) -> None:
        """Count it as ended; with its last sequence, a request is gone and its id is free."""
        sequence.ended = True
        owner = sequence.owner
        if owner.started:
            self.forgotten.append(sequence.key)
        if owner.alive:
            return
        del self.requests[owner.request.id]
        self.deadlines.remove(owner.request.id)
        self._history.request_ended(now)
        if not owner.started:
            self.fresh -= 1

    def leave(self, sequence: SequenceState) -> None:
        """Take an ended sequence out of where it is and give its pages back."""
        self.changed = True
        if sequence.running:
            self._stop_running(sequence)
            if sequence.followers:
                heir = self._heir(sequence)
                self._memory.hand_over(sequence, heir)
                self.running[heir.key] = heir
                heir.running = True
            self._memory.release(sequence)
            return
        leader = self._leader(sequence)
        if leader is not None:
            leader.followers.remove(sequence)
            self._memory.release(sequence)
            return
        self.queue.remove(sequence)
        if sequence.followers:
            self.queue.push(self._heir(sequence))

    def _stop_running(self, sequence: SequenceState) -> None:
        del self.running[sequence.key]
        sequence.running = False

    def _heir(self, leader: SequenceState) -> SequenceState:
        heir, *rest = leader.followers
        leader.followers, heir.followers = [], rest
        heir.preempted = leader.preempted
        return heir

    def _leader(self, follower: SequenceState) -> SequenceState | None:
        """Whom it follows; None: it waits by itself."""
        siblings = follower.owner.sequences
        return next((one for one in siblings if follower in one.followers), None)
