"""The hand-over, small enough to be explored exhaustively.

The real `RequestBook`, `LeaseBook` and `Puller` of a few prefill and decode workers, and little
else. One move: all that was said at once arrives; a copy reads its pages; a decode worker computes;
a worker dies; time passes to the next deadline, or past a whole time to live. A prompt is computed
when it arrives. Streams are lossless and ordered, and end after the last word of the dead.

Symmetry: workers of a role are alike, so the first request goes to the first of each; only who
gets the others is a choice. Nobody comes back: with two deaths two workers are left to finish.
A page that comes free is used anew at once, by something else: whoever reads it later must notice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.handover import LeaseBook, Puller
from antiphon.core.requests import RequestBook
from antiphon.errors import BugError
from antiphon.sim.law import LawBroken
from antiphon.types import RequestId, Role, Seconds, WorkerId

from .chosen_router import ChosenRouter
from .facts import GATEWAY, TTL_S, StreamEnded, arrives_at_once
from .gateway import new_gateway
from .local import Due, Heard, Input, Join, Local, Process, Read, Start, Word, Work
from .owner_memory import OwnerMemory
from .worker import new_worker

Move: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much can happen.

    `waits`: how often time passes while there is something else to do, to the next deadline (of a
    renewal, say) or past a whole time to live. So one is enough for a lease that is renewed once,
    and for one that runs out at any moment.
    """

    prefill: int = 2
    decode: int = 2
    requests: int = 2
    crashes: int = 2
    waits: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverParts:
    """The kind of each part. Tests put in faulty ones, and demand that the explorer finds them."""

    book: Callable[[ChosenRouter], RequestBook] = RequestBook
    leases: type[LeaseBook] = LeaseBook
    puller: type[Puller] = Puller
    memory: type[OwnerMemory] = OwnerMemory


STANDARD_HANDOVER_PARTS = HandoverParts()


Batch: TypeAlias = tuple[Word, ...]
"""What was said at once, and arrives at once."""


@dataclass(frozen=True, slots=True)
class HandoverState:
    """Processes, what is on its way between them, and what may still go wrong.

    `processes`: the living, and the dead whose memory is being read; see `Local.process`.
    """

    now: Seconds
    crashes_left: int
    waits_left: int
    alive: tuple[WorkerId, ...]
    streams: tuple[tuple[WorkerId, WorkerId, tuple[Batch, ...]], ...]
    processes: tuple[tuple[WorkerId, Process], ...]


class HandoverModel:
    """See `explore.Model`."""

    def __init__(self, bounds: Bounds, parts: HandoverParts = STANDARD_HANDOVER_PARTS) -> None:
        self._bounds = bounds
        self._parts = parts
        self._local = Local()

    def first(self) -> Sequence[HandoverState]:
        """One state for each choice of workers that symmetry leaves open."""
        bounds = self._bounds
        others = [(p, d) for p in range(bounds.prefill) for d in range(bounds.decode)]
        choices: list[list[tuple[int, int]]] = [[(0, 0)]]
        for _ in range(bounds.requests - 1):
            choices = [[*before, one] for before in choices for one in others]
        return [self._begin(choice) for choice in choices]

    def _begin(self, preferences: Sequence[tuple[int, int]]) -> HandoverState:
        bounds, parts = self._bounds, self._parts
        ids = [RequestId(f"r{number}") for number in range(bounds.requests)]
        router = ChosenRouter(dict(zip(ids, preferences, strict=True)))
        gateway = self._local.begin(new_gateway(parts.book(router), ids))
        counts = ((Role.PREFILL, bounds.prefill), (Role.DECODE, bounds.decode))
        roles = {WorkerId(f"{r.value}-{n}"): r for r, count in counts for n in range(count)}
        workers = [
            (
                name,
                self._local.begin(new_worker(name, parts.memory(), parts.leases, parts.puller)),
            )
            for name in roles
        ]
        processes = ((GATEWAY, gateway), *workers)
        state = HandoverState(1.0, bounds.crashes, bounds.waits, tuple(roles), (), processes)
        step = _Step(self._local, state)
        for name, role in roles.items():
            step.apply(GATEWAY, Join(name, role))
        for id in ids:
            step.apply(GATEWAY, Start(id))
        return step.end()

    def moves(self, state: HandoverState) -> Sequence[Move]:
        """See `explore.Model`. Time passes by itself only when nothing else can happen."""
        facts = {name: self._local.facts(process) for name, process in state.processes}
        moves: list[Move] = [("deliver", source, target) for source, target, _ in state.streams]
        for name in state.alive:
            moves += facts[name].moves
        living = (GATEWAY, *state.alive)
        timed = any(facts[name].deadline is not None for name in living)
        if timed and not moves:
            return [("wait",)]
        if timed and state.waits_left:
            moves += [("wait",), ("sleep",)]
        if state.crashes_left and not facts[GATEWAY].done:
            moves += [("crash", name) for name in state.alive]
        return moves

    def after(self, state: HandoverState, move: Move) -> HandoverState:
        """See `explore.Model`."""
        step = _Step(self._local, state)
        match move:
            case ("deliver", source, target):
                step.deliver(WorkerId(source), WorkerId(target))
            case ("compute", name):
                step.apply(WorkerId(name), Work())
            case ("read", name, request, attempt, owner):
                memory = step.processes[WorkerId(owner)]
                key = (RequestId(request), int(attempt))
                step.apply(WorkerId(name), Read(key, memory, step.now))
            case ("crash", name):
                step.crash(WorkerId(name))
            case (how,):
                # What must happen anyway costs nothing.
                step.pass_time(how, costs=self.moves(state) != [("wait",)])
            case _:
                raise BugError(f"{move} is no move")
        return step.end()

    def check_end(self, state: HandoverState) -> None:
        """See `explore.Model`: all requests are over, and nothing is left of them."""
        for name, process in state.processes:
            facts = self._local.facts(process)
            if not facts.done:
                raise LawBroken("I1: a request never ends")
            if not facts.idle:
                raise LawBroken(f"I4: {name} keeps something of requests that are over")


class _Step:
    """One move under way."""

    def __init__(self, local: Local, state: HandoverState) -> None:
        self.now = state.now
        self.processes = dict(state.processes)
        self._local = local
        self._alive = list(state.alive)
        self._crashes_left, self._waits_left = state.crashes_left, state.waits_left
        self._streams = {(source, to): sent for source, to, sent in state.streams}
        self._said: dict[tuple[WorkerId, WorkerId], list[Word]] = {}

    def apply(self, name: WorkerId, what: Input) -> None:
        """Something happens to a process, and what it says goes its way."""
        self.processes[name], said = self._local.after(self.processes[name], what)
        for target, word in said:
            self._send(name, target, word)

    def _send(self, source: WorkerId, target: WorkerId, word: Word) -> None:
        """A worker that calls a dead one finds out."""
        if target != GATEWAY and target not in self._alive:
            if source != GATEWAY:
                self._end_stream(target, source)
        elif arrives_at_once(target, self._local.said(word)):
            self.apply(target, Heard(source, word, self.now))
        else:
            self._said.setdefault((source, target), []).append(word)

    def _end_stream(self, dead: WorkerId, listener: WorkerId) -> None:
        word = self._local.word(StreamEnded(dead))
        self._said.setdefault((dead, listener), []).append(word)

    def deliver(self, source: WorkerId, target: WorkerId) -> None:
        """The oldest batch of a stream arrives."""
        first, *rest = self._streams.pop((source, target))
        if rest:
            self._streams[source, target] = tuple(rest)
        for word in first:
            self.apply(target, Heard(source, word, self.now))

    def crash(self, name: WorkerId) -> None:
        """A worker dies; those who depend on it find out after its last word."""
        self._crashes_left -= 1
        self._alive.remove(name)
        for ends in [ends for ends in self._streams if ends[1] == name]:
            del self._streams[ends]
        self._end_stream(name, GATEWAY)
        for other in self._alive:
            if name in self._local.facts(self.processes[other]).pulls_from:
                self._end_stream(name, other)

    def pass_time(self, how: str, *, costs: bool) -> None:
        """To the next deadline, or so far that every lease has run out unheard."""
        self._waits_left -= costs
        names = (GATEWAY, *self._alive)
        deadlines = {name: self._local.facts(self.processes[name]).deadline for name in names}
        soonest = min(at for at in deadlines.values() if at is not None)
        self.now = max(self.now, soonest) if how == "wait" else self.now + TTL_S
        for name, at in deadlines.items():
            if at is not None and at <= self.now:
                self.apply(name, Due(self.now))

    def end(self) -> HandoverState:
        """The state that comes of it."""
        for ends, words in self._said.items():
            self._streams[ends] = (*self._streams.get(ends, ()), tuple(words))
        needed = {GATEWAY, *self._alive}
        for name in self._alive:
            needed.update(self._local.facts(self.processes[name]).pulls_from)
        return HandoverState(
            self.now,
            self._crashes_left,
            self._waits_left,
            tuple(self._alive),
            tuple((*ends, sent) for ends, sent in sorted(self._streams.items())),
            tuple((name, one) for name, one in self.processes.items() if name in needed),
        )
