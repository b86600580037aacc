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
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from antiphon.core.handover import LeaseBook, Puller, RenewTaken
from antiphon.core.requests import RequestBook
from antiphon.errors import BugError
from antiphon.testing.laws import LawBroken
from antiphon.testing.packed import TABLE, Number, pack, unpack, view
from antiphon.types import (
    Renew,
    Request,
    RequestId,
    Role,
    SamplingParams,
    Seconds,
    WorkerId,
    WorkerJoined,
)

from .chosen_router import ChosenRouter
from .facts import GATEWAY, OUTPUT_TOKENS, PROMPT, TTL_S, Answer, Ask, StreamEnded
from .gateway import HandoverGateway, new_gateway
from .ignored import IGNORED
from .owner_memory import OwnerMemory
from .worker import HandoverWorker, new_worker

Move: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much can happen. `waits`: how often time passes while there is something else to do."""

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


@dataclass(frozen=True, slots=True)
class _Process:
    """One process, packed, and what must be known of it without unpacking."""

    packed: bytes = field(compare=False)
    view: bytes
    moves: tuple[Move, ...] = field(compare=False)
    deadline: Seconds | None = field(compare=False)
    done: bool = field(compare=False)
    """Nothing is left here (a worker), all requests are over (the gateway)."""
    pulls_from: tuple[WorkerId, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class HandoverState:
    """A state: processes, what is on its way between them, and what may still go wrong.

    `streams`: (from, to, batches): what was said at once arrives at once.
    """

    now: Seconds
    crashes_left: int
    waits_left: int
    alive: tuple[WorkerId, ...]
    streams: tuple[tuple[WorkerId, WorkerId, tuple[Number, ...]], ...]
    processes: tuple[tuple[WorkerId, _Process], ...]


class HandoverModel:
    """See `explore.Model`."""

    def __init__(self, bounds: Bounds, parts: HandoverParts = STANDARD_HANDOVER_PARTS) -> None:
        self._bounds = bounds
        self._parts = parts

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
        gateway = new_gateway(parts.book(router), ids)
        counts = ((Role.PREFILL, bounds.prefill), (Role.DECODE, bounds.decode))
        names = [(role, f"{role.value}-{n}") for role, count in counts for n in range(count)]
        workers = [
            new_worker(WorkerId(name), role, parts.memory(), parts.leases, parts.puller)
            for role, name in names
        ]
        alive = tuple(worker.name for worker in workers)
        empty = HandoverState(1.0, bounds.crashes, bounds.waits, alive, (), ())
        step = _Step(empty, {GATEWAY: gateway, **{worker.name: worker for worker in workers}})
        for worker in workers:
            step.order(gateway.book.observe(WorkerJoined(worker.info), step.now))
        for id in ids:
            sampling = SamplingParams(max_tokens=OUTPUT_TOKENS, seed=0)
            request = Request(id=id, prompt=PROMPT, sampling=sampling)
            step.order(gateway.book.start(request, step.now))
        return step.end()

    def moves(self, state: HandoverState) -> Sequence[Move]:
        """See `explore.Model`. Time passes by itself only when nothing else can happen."""
        processes = dict(state.processes)
        moves: list[Move] = [("deliver", source, target) for source, target, _ in state.streams]
        for name in state.alive:
            moves += processes[name].moves
        living = (GATEWAY, *state.alive)
        deadlines = any(processes[name].deadline is not None for name in living)
        if deadlines and not moves:
            return [("wait",)]
        if deadlines and state.waits_left:
            moves += [("wait",), ("sleep",)]
        if state.crashes_left and not processes[GATEWAY].done:
            moves += [("crash", name) for name in state.alive]
        return moves

    def after(self, state: HandoverState, move: Move) -> HandoverState:
        """See `explore.Model`."""
        step = _Step(state, {})
        match move:
            case ("deliver", source, target):
                step.deliver(WorkerId(source), WorkerId(target))
            case ("compute", name):
                step.worker(WorkerId(name)).compute(step.sender(WorkerId(name)))
            case ("read", name, request, attempt, owner):
                worker, memory = step.worker(WorkerId(name)), step.peek(WorkerId(owner)).memory
                key = (RequestId(request), int(attempt))
                worker.read(key, memory, step.now, step.sender(worker.name))
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
        processes = dict(state.processes)
        if not processes[GATEWAY].done:
            raise LawBroken("I1: a request never ends")
        gateway: HandoverGateway = unpack(processes[GATEWAY].packed)
        if not gateway.idle:
            raise LawBroken("I4: the book keeps something of requests that are over")
        for name in state.alive:
            if not processes[name].done:
                raise LawBroken(f"I4: {name} keeps something of requests that are over")


class _Step:
    """One move under way: unpacks the processes that it touches, and packs them again."""

    def __init__(self, state: HandoverState, touched: dict[WorkerId, Any]) -> None:
        self.now = state.now
        self._state = state
        self._alive = list(state.alive)
        self._crashes_left, self._waits_left = state.crashes_left, state.waits_left
        self._processes = dict(state.processes)
        self._touched = touched
        self._streams = {(source, to): sent for source, to, sent in state.streams}
        self._said: dict[tuple[WorkerId, WorkerId], list[object]] = {}

    def _touch(self, name: WorkerId) -> Any:
        if name not in self._touched:
            self._touched[name] = unpack(self._processes[name].packed)
        return self._touched[name]

    def peek(self, name: WorkerId) -> HandoverWorker:
        """A worker to look at, as it was before this move."""
        return self._touched.get(name) or unpack(self._processes[name].packed)

    def worker(self, name: WorkerId) -> HandoverWorker:
        """A worker that this move changes."""
        return self._touch(name)

    def order(self, commands: Sequence[Any]) -> None:
        """The book has decided something."""
        gateway: HandoverGateway = self._touch(GATEWAY)
        gateway.order(commands, self.sender(GATEWAY))

    def sender(self, source: WorkerId) -> Callable[[WorkerId, object], None]:
        """How a process sends. A worker that calls a dead one finds out."""

        def send(target: WorkerId, message: object) -> None:
            if target != GATEWAY and target not in self._alive:
                if source != GATEWAY:
                    self._enqueue(target, source, StreamEnded(target))
            elif _arrives_at_once(target, message):
                self._hear(source, target, message)
            else:
                self._enqueue(source, target, message)

        return send

    def _enqueue(self, source: WorkerId, target: WorkerId, message: object) -> None:
        self._said.setdefault((source, target), []).append(message)

    def _hear(self, source: WorkerId, target: WorkerId, message: object) -> None:
        process, send = self._touch(target), self.sender(target)
        if target == GATEWAY:
            process.hear(message, self.now, send)
        else:
            process.hear(source, message, self.now, send)

    def deliver(self, source: WorkerId, target: WorkerId) -> None:
        """The oldest batch of a stream arrives."""
        first, *rest = self._streams.pop((source, target))
        if rest:
            self._streams[source, target] = tuple(rest)
        for message in TABLE.value(first):
            self._hear(source, target, message)

    def crash(self, name: WorkerId) -> None:
        """A worker dies; those who depend on it find out after its last word."""
        self._crashes_left -= 1
        self._alive.remove(name)
        for ends in [ends for ends in self._streams if ends[1] == name]:
            del self._streams[ends]
        for other in (GATEWAY, *self._alive):
            if other == GATEWAY or name in self._processes[other].pulls_from:
                self._enqueue(name, other, StreamEnded(name))

    def pass_time(self, how: str, *, costs: bool) -> None:
        """To the next deadline, or so far that every lease has run out unheard."""
        self._waits_left -= costs
        names = [GATEWAY, *self._alive]
        deadlines = {name: self._processes[name].deadline for name in names}
        soonest = min(at for at in deadlines.values() if at is not None)
        self.now = max(self.now, soonest) if how == "wait" else self.now + TTL_S
        for name, at in deadlines.items():
            if at is not None and at <= self.now:
                self._touch(name).due(self.now, self.sender(name))

    def end(self) -> HandoverState:
        """The state that comes of it. Raises `LawBroken` if it must not be."""
        for name, process in self._touched.items():
            self._processes[name] = _packed(name, process)
        for ends, messages in self._said.items():
            batch = TABLE.number(tuple(messages))
            self._streams[ends] = (*self._streams.get(ends, ()), batch)
        return replace(
            self._state,
            now=self.now,
            crashes_left=self._crashes_left,
            waits_left=self._waits_left,
            alive=tuple(self._alive),
            streams=tuple((*ends, sent) for ends, sent in sorted(self._streams.items())),
            processes=tuple(self._processes.items()),
        )


def _packed(name: WorkerId, process: HandoverGateway | HandoverWorker) -> _Process:
    packed, seen = pack(process), view(process, IGNORED)
    if isinstance(process, HandoverGateway):
        return _Process(packed, seen, (), process.book.next_deadline(), process.settled)
    process.check()
    moves: list[Move] = [("compute", name)] if process.jobs else []
    for (request, attempt), copying in process.copying.items():
        moves.append(("read", name, request, str(attempt), copying.pull.offer.owner))
    return _Process(
        packed, seen, tuple(moves), process.next_deadline(), process.idle, process.pulls_from
    )


def _arrives_at_once(target: WorkerId, message: object) -> bool:
    """Words whose time on the way makes no difference that another move does not make.

    What a worker says to the gateway might as well have been said later, or before the worker
    died. Renewals and answers matter only by time passing, and that may pass before or after.
    """
    if target == GATEWAY:
        return not isinstance(message, StreamEnded)
    renews = isinstance(message, Renew) or (
        isinstance(message, Ask) and isinstance(message.command, RenewTaken)
    )
    return renews or isinstance(message, Answer)
