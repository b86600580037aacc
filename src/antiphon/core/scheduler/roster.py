"""Who waits and who runs: every move of a sequence between the states of `sequence.py`.

A sequence ends at once, but if a chunk of it is in the outstanding plan it keeps its place and
its pages until the step completes.
"""

from collections.abc import Collection, Iterable, Sequence

from antiphon.core.deadlines import Deadlines
from antiphon.core.kv import PageTally
from antiphon.types import NO_PAGE, PageId, RequestId, Seconds, SequenceKey

from .history import History
from .sequence import RequestState, SequenceState, in_party_order, is_prefill
from .sequence_memory import SequenceMemory
from .waiting_queue import WaitingQueue


class Roster:
    """All requests that have not ended, by state. Decides nothing."""

    def __init__(self, memory: SequenceMemory, history: History, turn_tokens: int) -> None:
        """`turn_tokens`: what tenants that wait start in turn."""
        self._memory = memory
        self._history = history
        self.requests: dict[RequestId, RequestState] = {}
        self.deadlines = Deadlines()
        self.running: dict[SequenceKey, SequenceState] = {}
        """In the order in which they started."""
        self.queue = WaitingQueue(turn_tokens)
        self.receiving: dict[tuple[RequestId, int], list[SequenceState]] = {}
        """By request and attempt: parties whose KV is on its way, also if they ended meanwhile."""
        self.prefills: dict[RequestId, RequestState] = {}
        """Started requests whose KV is to be offered, in the order in which they started."""
        self.promised = PageTally()
        """Pages that take part in them."""
        self.fresh = 0
        """Requests that have not started."""
        self.forgotten: list[SequenceKey] = []
        """Ended since the last plan, and perhaps known to the engine."""
        self.changed = True
        """Whether who is served next, or what runs, has changed since this was last cleared."""
        self.passing = False
        """Whether who is served next was let pass: then whoever comes may be next, too."""

    @property
    def running_requests(self) -> int:
        """Requests of which something runs."""
        return len({one.key.request for one in self.running.values() if not one.ended})

    @property
    def arriving(self) -> int:
        """Requests whose KV is on its way, or waits for room at another worker."""
        fetching = (
            party[0].owner for party in self.receiving.values() if party[0].owner.adoption is None
        )
        return sum(state.adoption is not None for state in self.requests.values()) + sum(
            bool(owner.alive) for owner in fetching
        )

    @property
    def roomless(self) -> int:
        """Requests whose KV waits at another worker for room here."""
        return sum(
            state.adoption is not None and (id, state.request.attempt) not in self.receiving
            for id, state in self.requests.items()
        )

    def present(self) -> Collection[SequenceState]:
        """Who takes part in memory: what runs, and the first of each party that receives."""
        if not self.receiving:
            return self.running.values()
        return [*self.running.values(), *(party[0] for party in self.receiving.values())]

    def tokens_to_prefill(self) -> int:
        """Tokens that are to be computed here before what waits or runs can decode."""
        return sum(
            one.uncomputed
            for one in (*self.queue, *self.present())
            if is_prefill(one) and not one.ended
        )

    @property
    def taken_places(self) -> int:
        """Sequences that run, or will when their KV is here or their prompt is computed."""
        running = sum(1 + len(one.followers) for one in self.running.values())
        return running + sum(len(party) for party in self.receiving.values())

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

        Those without a token share the work on the prompt: the first leads the others. A party
        waits as one, and those with tokens follow last.
        """
        party = [one for one in state.alive if not one.outputs]
        if state.is_party:
            party = in_party_order(state.alive)
        if party:
            party[0].followers = party[1:]
        waiting = [one for one in state.alive if one not in party[1:]]
        places = [self.queue.push(one) for one in waiting]
        self.changed = self.changed or self.passing or self.queue.head in waiting
        return min(places)

    def start(self, sequence: SequenceState) -> None:
        """From the queue to the running ones; its memory is taken already."""
        self._leave_queue(sequence)
        self._run(sequence)

    def receive(self, sequence: SequenceState) -> None:
        """From the queue to those whose KV is on its way; its memory is taken already."""
        party = self._leave_queue(sequence)
        for one in party:
            one.in_flight = True
        request = sequence.owner.request
        self.receiving[request.id, request.attempt] = party

    def _leave_queue(self, leader: SequenceState) -> list[SequenceState]:
        """With its party, whose pages are promised from now on if they are to be offered."""
        self.queue.start(leader)
        party = [leader, *leader.followers]
        owner = leader.owner
        if owner.lease is not None:
            self._promise(owner, party)
            self.prefills[owner.request.id] = owner
        return party

    def _promise(self, owner: RequestState, party: Iterable[SequenceState]) -> None:
        owner.promised = tuple(page for one in party for page in one.table if page != NO_PAGE)
        self.promised.add(owner.promised)

    def promise_again(self, owner: RequestState) -> None:
        """It has given pages back: if it is to be offered, those that it still has are promised."""
        if self.prefills.get(owner.request.id) is owner:
            self.promised.remove(owner.promised)
            self._promise(owner, owner.alive)

    def received(self, request: RequestId, attempt: int) -> SequenceState | None:
        """Nothing is written any more: the living run, all but the first behind it.

        Returns the first; None: all have ended meanwhile.
        """
        self.changed = True
        party = self.receiving.pop((request, attempt))
        alive = [one for one in party if not one.ended]
        if alive and party[0].ended:
            self._memory.hand_over(party[0], alive[0])
        for one in party:
            one.in_flight, one.followers = False, []
            if one.ended:
                self._memory.release(one)
                self._forget(one)
        if not alive:
            return None
        leader, leader.followers = alive[0], alive[1:]
        self._run(leader)
        return leader

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
                self._forget(follower)
                continue
            self._memory.fork(leader, follower)
            if follower.owner.lease is not None and not follower.resumed_len:
                follower.parked = True
                continue
            self._run(follower)
        leader.followers = []
        self.changed = True

    def park(self, sequence: SequenceState) -> None:
        """Its prompt is computed and its token drawn: it runs no more, and keeps its pages."""
        self._stop_running(sequence)
        sequence.parked = True
        self.changed = True

    def offer(self, state: RequestState, now: Seconds) -> list[PageId]:
        """Forget a party that is parked; returns the page references that it had."""
        references: list[PageId] = []
        for one in state.alive:
            references += (page for page in one.table if page != NO_PAGE)
            one.table = []
            self.mark_ended(one, now)
            self._forget(one)
        return references

    def give_back(self, references: Sequence[PageId]) -> None:
        """A lease has ended: whoever waits for memory may start."""
        self._memory.pool.release(references)
        self.changed = True

    def end(self, ends: Iterable[SequenceState], now: Seconds) -> None:
        """These sequences end now.

        Those in flight leave when the step completes, or when their KV has come.
        """
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
        if self.prefills.pop(owner.request.id, None) is not None:
            self.promised.remove(owner.promised)
        self.deadlines.remove(owner.request.id)
        self._history.request_ended(now)
        if not owner.started:
            self.fresh -= 1

    def end_new(self, sequence: SequenceState, now: Seconds) -> None:
        """It ends as it comes, before it has waited or run."""
        self.mark_ended(sequence, now)
        self._forget(sequence)

    def leave(self, sequence: SequenceState) -> None:
        """Take an ended sequence out of where it is and give its pages back."""
        self.changed = True
        self._take_out(sequence)
        self._forget(sequence)

    @staticmethod
    def _forget(sequence: SequenceState) -> None:
        """It has ended and is nowhere any more.

        Its request refers to it no longer: else both, and a long prompt with them, would stay until
        somebody looks for cycles.
        """
        sequence.owner.sequences.remove(sequence)

    def dismantle(self) -> None:
        """Requests and sequences know each other no longer. Nothing may be called any more."""
        started = (
            *self.running.values(),
            *(one for some in self.receiving.values() for one in some),
        )
        for owner in (*self.requests.values(), *(one.owner for one in started)):
            owner.sequences = []

    def _take_out(self, sequence: SequenceState) -> None:
        if sequence.running:
            self._stop_running(sequence)
            if sequence.followers:
                heir = self._heir(sequence)
                self._memory.hand_over(sequence, heir)
                self._run(heir)
            self._memory.release(sequence)
            return
        if sequence.parked:
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

    def _run(self, sequence: SequenceState) -> None:
        self.running[sequence.key] = sequence
        sequence.running = True

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
