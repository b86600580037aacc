"""What happens within one process: a function of its state and an input, computed once for each.

A small model has few states of each process and very many combinations of them, so remembering
these makes exploration fast.
"""

from dataclasses import dataclass
from typing import Any, NewType, TypeAlias

from antiphon.errors import BugError
from antiphon.testing.packed import TABLE, Number, pack, unpack, view
from antiphon.types import Request, RequestId, Role, SamplingParams, Seconds, WorkerId, WorkerJoined

from .facts import OUTPUT_TOKENS, PROMPT, info_of
from .gateway import HandoverGateway
from .ignored import IGNORED
from .worker import HandoverWorker

Process = NewType("Process", int)
"""A state of one process: equal ones have one number."""
Word: TypeAlias = Number
"""A message: equal ones have one number."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message arrives."""

    source: WorkerId
    word: Word
    now: Seconds


@dataclass(frozen=True, slots=True)
class Due:
    """Time has passed."""

    now: Seconds


@dataclass(frozen=True, slots=True)
class Work:
    """A worker computes what it has."""


@dataclass(frozen=True, slots=True)
class Read:
    """A worker copies the pages of a pull from `owner`, as that process is now."""

    key: tuple[RequestId, int]
    owner: Process
    now: Seconds


@dataclass(frozen=True, slots=True)
class Join:
    """At the beginning: the gateway has a worker."""

    worker: WorkerId
    role: Role


@dataclass(frozen=True, slots=True)
class Start:
    """At the beginning: the gateway gets a request."""

    request: RequestId


Input: TypeAlias = Heard | Due | Work | Read | Join | Start


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be known of a process to see what can happen to it."""

    moves: tuple[tuple[str, ...], ...]
    deadline: Seconds | None
    done: bool
    """All requests are over for their clients; a worker has no clients."""
    idle: bool
    """Nothing is kept of any request."""
    pulls_from: tuple[WorkerId, ...]


Outcome: TypeAlias = tuple[Process, tuple[tuple[WorkerId, Word], ...]] | BugError


class Local:
    """Numbers the states of processes, and remembers what comes of each input in each."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, Process] = {}
        self._packed: list[bytes] = []
        self._facts: list[Facts] = []
        self._outcomes: dict[tuple[Process, Input], Outcome] = {}

    def word(self, message: object) -> Word:
        """The number of a message."""
        return TABLE.number(message)

    def said(self, word: Word) -> object:
        """The message of that number."""
        return TABLE.value(word)

    def facts(self, process: Process) -> Facts:
        """Of a process in that state."""
        return self._facts[process]

    def begin(self, process: HandoverGateway | HandoverWorker) -> Process:
        """A process starts. Raises `BugError` if it breaks a law already."""
        if isinstance(process, HandoverWorker):
            process.tidy()
            process.check()
        seen = view(process, IGNORED)
        number = self._numbers.setdefault(seen, Process(len(self._packed)))
        if number == len(self._packed):
            self._packed.append(pack(process))
            self._facts.append(_facts_of(process))
        return number

    def after(
        self, process: Process, what: Input
    ) -> tuple[Process, tuple[tuple[WorkerId, Word], ...]]:
        """The state that comes of it, and what is said. Raises `BugError` if it breaks a law."""
        outcome = self._outcomes.get((process, what))
        if outcome is None:
            outcome = self._outcomes[process, what] = self._compute(process, what)
        if isinstance(outcome, BugError):
            raise outcome
        return outcome

    def _compute(self, process: Process, what: Input) -> Outcome:
        one = unpack(self._packed[process])
        said: list[tuple[WorkerId, Word]] = []

        def send(target: WorkerId, message: object) -> None:
            said.append((target, TABLE.number(message)))

        try:
            if isinstance(one, HandoverGateway):
                _tell_gateway(one, what, send)
            else:
                self._tell_worker(one, what, send)
            return self.begin(one), tuple(said)
        except BugError as problem:
            return problem

    def _tell_worker(self, worker: HandoverWorker, what: Input, send: Any) -> None:
        match what:
            case Heard(source, word, now):
                worker.hear(source, TABLE.value(word), now, send)
            case Due(now):
                worker.due(now, send)
            case Work():
                worker.compute(send)
            case Read(key, owner, now):
                worker.read(key, unpack(self._packed[owner]).memory, now, send)
            case Join() | Start():
                raise BugError(f"{what} is not for a worker")


def _tell_gateway(gateway: HandoverGateway, what: Input, send: Any) -> None:
    match what:
        case Heard(_, word, now):
            gateway.hear(TABLE.value(word), now, send)
        case Due(now):
            gateway.due(now, send)
        case Join(worker, role):
            joined = WorkerJoined(info_of(worker, role))
            gateway.order(gateway.book.observe(joined, 1.0), send)
        case Start(id):
            sampling = SamplingParams(max_tokens=OUTPUT_TOKENS, seed=0)
            request = Request(id=id, prompt=PROMPT, sampling=sampling)
            gateway.order(gateway.book.start(request, 1.0), send)
        case Work() | Read():
            raise BugError(f"{what} is not for a gateway")


def _facts_of(process: HandoverGateway | HandoverWorker) -> Facts:
    if isinstance(process, HandoverGateway):
        deadline = process.book.next_deadline()
        return Facts((), deadline, process.settled, process.idle, ())
    moves: list[tuple[str, ...]] = [("compute", process.name)] if process.jobs else []
    for (request, attempt), copying in process.copying.items():
        moves.append(("read", process.name, request, str(attempt), copying.pull.offer.owner))
    return Facts(tuple(moves), process.next_deadline(), True, process.idle, process.pulls_from)
