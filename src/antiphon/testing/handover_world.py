"""The hand-over, small enough to be explored exhaustively.

The real `RequestBook`, `LeaseBook` and `Puller` of a few prefill and decode workers, and nothing
else: a worker computes in one move what it was given, a copy reads one page a move, a message
arrives in one move, a worker dies in one, and time jumps to the next deadline in one. Streams are
lossless and ordered, and end after the last word of the dead.

Symmetry: workers of a role are alike, so the first request goes to the first of each; only who
gets the others is a choice (`preferences`). A page that comes free is used anew at once, by
something else: whoever reads it later must notice.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from antiphon.core.handover import (
    Acknowledge,
    Copy,
    LeaseBook,
    PullCommand,
    PullEnded,
    Puller,
    RenewTaken,
    StopCopy,
    Take,
)
from antiphon.core.requests import RequestBook
from antiphon.types import (
    Abort,
    Admitted,
    Adopt,
    Command,
    Deliver,
    Dispatch,
    Drained,
    EndSequence,
    FinishReason,
    FleetEvent,
    Grant,
    GrantAnswered,
    Health,
    HealthChanged,
    Hold,
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    ModelInfo,
    Offer,
    OfferedPage,
    OfferedSequence,
    Outcome,
    PageId,
    PagePull,
    Pull,
    Pulled,
    Rejected,
    Release,
    Renew,
    Request,
    RequestId,
    Role,
    Route,
    SamplingParams,
    Seconds,
    SequenceEnded,
    Settle,
    Stage,
    Started,
    TokenGenerated,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)

from .frozen_view import frozen_view
from .laws import LawBroken

TTL_S: Seconds = 3.0
ANSWER_S: Seconds = 2.0
PROMPT = (1, 1)
OUTPUT_TOKENS = 2
"""One that prefill draws, one that decode draws."""
GATEWAY = WorkerId("gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much can happen. `jumps`: how often time passes while there is something else to do."""

    prefill: int = 2
    decode: int = 2
    requests: int = 2
    crashes: int = 2
    jumps: int = 2


Message: TypeAlias = object
Move: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The last thing to come from a dead worker."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class GrantTo:
    """`Grant`, with the life of the taker that is meant."""

    request: RequestId
    attempt: int
    lease: LeaseId
    taker: Incarnation


@dataclass(frozen=True, slots=True)
class Ask:
    """A taker's word to an owner."""

    command: Take | RenewTaken | Acknowledge
    taker: Incarnation


@dataclass(frozen=True, slots=True)
class Answer:
    """An owner's word to a taker."""

    to: Take | RenewTaken | Acknowledge
    answers: tuple[LeaseHeld | LeaseRefused, ...]


def token_of(request: RequestId, index: int) -> int:
    """No two tokens of the world are alike."""
    return 100 * int(request[1:]) + index


class ChosenRouter:
    """Chooses by preference among the living, so that the explorer can try all choices."""

    def __init__(self, preferences: dict[RequestId, tuple[int, int]]) -> None:
        self._preferences = preferences
        self._alive: dict[Role, list[WorkerId]] = {Role.PREFILL: [], Role.DECODE: []}

    def observe(self, event: FleetEvent, now: Seconds) -> None:
        """See `core.requests.Routing`."""
        match event:
            case WorkerJoined(info):
                self._alive[info.role].append(info.id)
            case HealthChanged(worker, Health.LOST):
                for alive in self._alive.values():
                    if worker in alive:
                        alive.remove(worker)
            case _:
                pass

    def _best(self, role: Role, request: RequestId) -> WorkerId | None:
        alive = self._alive[role]
        wanted = self._preferences[request][role is Role.DECODE]
        return alive[wanted % len(alive)] if alive else None

    def choose(self, request: Request, now: Seconds) -> Route | Hold | Rejected:
        """See `core.requests.Routing`."""
        prefill = self._best(Role.PREFILL, request.id)
        decode = self._best(Role.DECODE, request.id)
        if prefill is None and decode is None:
            return Hold(request=request.id, reason="nobody is there", ask_again_at=now + TTL_S)
        if prefill is None or decode is None:
            alone = prefill or decode
            assert alone is not None
            return Route(request=request.id, prefill=None, decode=alone, reason="alone")
        return Route(request=request.id, prefill=prefill, decode=decode, reason="apart")

    def choose_decode(
        self, offer: Offer, request: Request, now: Seconds
    ) -> WorkerId | Hold | Rejected:
        """See `core.requests.Routing`."""
        decode = self._best(Role.DECODE, request.id)
        if decode is not None:
            return decode
        if offer.owner in self._alive[Role.PREFILL]:
            return offer.owner
        return Hold(request=request.id, reason="nobody is there", ask_again_at=now + TTL_S)

    def prefilled(self, request: RequestId, now: Seconds) -> None:
        """See `core.requests.Routing`."""

    def refused(self, worker: WorkerId, now: Seconds) -> None:
        """See `core.requests.Routing`."""

    def settled(self, request: RequestId, now: Seconds, *, again: bool = False) -> None:
        """See `core.requests.Routing`."""


_FREE = "something else"
_SHARED = "shared prompt page"


class OwnerMemory:
    """Sealed pages of one owner, readable by all. Page 0 is shared by all prompts."""

    def __init__(self) -> None:
        self.generations: dict[PageId, int] = {}
        self.contents: dict[PageId, str] = {}
        self.references: dict[PageId, int] = {}

    def prefill(self, request: RequestId) -> tuple[PageId, ...]:
        """Write a prompt's KV, or find it written; returns its table, referenced."""
        tail = next(page for page in range(1, 99) if not self.references.get(page))
        table = (0, tail)
        for page, content in zip(table, (_SHARED, request), strict=True):
            if not self.references.get(page):
                self._write(page, content)
            self.references[page] = self.references.get(page, 0) + 1
        return table

    def _write(self, page: PageId, content: str) -> None:
        self.contents[page] = content
        self.generations[page] = self.generations.get(page, 0) + 2

    def drop(self, references: Sequence[PageId]) -> None:
        """Page references of a lease that ended. Who has none left is used anew at once."""
        for page in references:
            self.references[page] -= 1
            if self.references[page] < 0:
                raise LawBroken(f"I3: page {page} is given back twice")
            if not self.references[page]:
                self._write(page, _FREE)

    def read(self, wanted: OfferedPage) -> str | None:
        """What a reader gets; None: it is not what was offered."""
        if self.generations[wanted.page] != wanted.generation:
            return None
        return self.contents[wanted.page]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverParts:
    """The kind of each part. Tests put in faulty ones, and demand that the explorer finds them."""

    book: Callable[[ChosenRouter], RequestBook] = RequestBook
    leases: type[LeaseBook] = LeaseBook
    puller: type[Puller] = Puller
    memory: type[OwnerMemory] = OwnerMemory


STANDARD_HANDOVER_PARTS = HandoverParts()


@dataclass(slots=True, eq=False)
class _Copying:
    pull: Pull
    memory: OwnerMemory
    good: list[bool] = field(default_factory=list)
    unwanted: bool = False


@dataclass(frozen=True, slots=True)
class _Job:
    """What a worker computes next: a prompt under a lease, or all the tokens that are left."""

    request: Request
    lease: LeaseId | None


class HandoverWorker:
    """A worker of either role: leases, a puller, and jobs instead of a scheduler."""

    def __init__(self, name: WorkerId, role: Role, parts: HandoverParts) -> None:
        self.name = name
        self.alive = True
        self.memory = parts.memory()
        self.leases = parts.leases(self.memory.drop, ttl_s=TTL_S)
        self.puller = parts.puller(answer_s=ANSWER_S, margin_s=TTL_S / 10)
        self.jobs: list[_Job] = []
        self.adopted: dict[tuple[RequestId, int], Request] = {}
        self.copying: dict[tuple[RequestId, int], _Copying] = {}
        self.attempts: dict[RequestId, int] = {}
        self.granted: dict[LeaseId, tuple[Incarnation, int]] = {}
        """To whom the gateway's last word gave each lease: what the lease book should know."""
        self.offers = 0
        self.role = role

    @property
    def incarnation(self) -> Incarnation:
        """Nobody comes back in this world."""
        return Incarnation(f"{self.name}#1")

    @property
    def info(self) -> WorkerInfo:
        """What it joins with."""
        return WorkerInfo(
            id=self.name,
            incarnation=self.incarnation,
            model=_MODEL,
            max_model_len=16,
            role=self.role,
            kv=_KV,
        )

    @property
    def idle(self) -> bool:
        """Nothing is left here."""
        return not (
            self.jobs or self.adopted or self.copying or len(self.puller) or len(self.leases)
        )

    def next_deadline(self) -> Seconds | None:
        """When time changes something here."""
        times = (self.leases.next_deadline(), self.puller.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def offer(self, request: Request, lease: LeaseId, now: Seconds) -> Offer:
        """A prompt is computed: its pages go under the lease."""
        table = self.memory.prefill(request.id)
        self.leases.offer(lease, request.id, request.attempt, table, now)
        pages = tuple(
            OfferedPage(page, self.memory.generations[page], checksum=0) for page in table
        )
        tokens = len(PROMPT) + len(request.resumed[0] if request.resumed else ())
        return Offer(
            request=request.id,
            attempt=request.attempt,
            lease=lease,
            ttl_s=TTL_S,
            owner=self.name,
            incarnation=self.incarnation,
            kv=_KV,
            numerics=_MODEL.numerics,
            pages=pages,
            sequences=(OfferedSequence(0, tokens, table),),
        )


_MODEL = ModelInfo(
    name="small",
    identity=bytes(32),
    numerics="small",
    vocab_size=1000,
    context_len=16,
    eos_token_ids=(),
    kv_bytes_per_token=1,
)
_KV = KvShape(layout="small", page_tokens=1, block_tokens=1, page_bytes=1, pages=9)


@dataclass(slots=True, eq=False)
class _Client:
    """What a client has, and how its request ended."""

    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    settled: bool = False


class HandoverWorld:
    """A state of the hand-over; see `explore.World`."""

    def __init__(
        self,
        bounds: Bounds,
        preferences: Sequence[tuple[int, int]],
        parts: HandoverParts = STANDARD_HANDOVER_PARTS,
    ) -> None:
        """`preferences[r]`: which prefill and which decode worker request r prefers."""
        self.now: Seconds = 1.0
        self.crashes_left = bounds.crashes
        self.jumps_left = bounds.jumps
        self.clients = {RequestId(f"r{n}"): _Client() for n in range(bounds.requests)}
        router = ChosenRouter(dict(zip(self.clients, preferences, strict=True)))
        self.book = parts.book(router)
        self.workers: dict[WorkerId, HandoverWorker] = {}
        self.streams: dict[tuple[WorkerId, WorkerId], list[Message]] = {}
        for role, count in ((Role.PREFILL, bounds.prefill), (Role.DECODE, bounds.decode)):
            for number in range(count):
                name = WorkerId(f"{role.value}-{number}")
                self.workers[name] = HandoverWorker(name, role, parts)
        for worker in self.workers.values():
            self._order(self.book.observe(WorkerJoined(worker.info), self.now))
        for id in self.clients:
            sampling = SamplingParams(max_tokens=OUTPUT_TOKENS, seed=0)
            request = Request(id=id, prompt=PROMPT, sampling=sampling)
            self._order(self.book.start(request, self.now))

    # ── the explorer's side ──────────────────────────────────────────────────────────────────

    def moves(self) -> list[Move]:
        """See `explore.World`. Time passes by itself only when nothing else can happen."""
        moves: list[Move] = [("deliver", *ends) for ends, sent in self.streams.items() if sent]
        for name, worker in self.workers.items():
            if worker.alive and worker.jobs:
                moves.append(("compute", name))
            if worker.alive:
                moves += [("read", name, id, str(attempt)) for id, attempt in worker.copying]
        crashes: list[Move] = []
        if self.crashes_left and not self.settled:
            crashes = [("crash", name) for name, one in self.workers.items() if one.alive]
        if (self.jumps_left or not moves) and self._next_deadline() is not None:
            moves.append(("jump",))
        return moves + crashes

    def make(self, move: Move) -> None:
        """See `explore.World`."""
        match move:
            case ("deliver", source, target):
                self._deliver(WorkerId(source), WorkerId(target))
            case ("compute", name):
                self._compute(self.workers[WorkerId(name)])
            case ("read", name, id, attempt):
                self._read(self.workers[WorkerId(name)], (RequestId(id), int(attempt)))
            case ("crash", name):
                self._crash(self.workers[WorkerId(name)])
            case _:
                self._jump()

    def view(self) -> Hashable:
        """See `explore.World`."""
        return frozen_view(
            (
                self.crashes_left,
                self.jumps_left,
                self.clients,
                self.book,
                list(self.workers.values()),
                {ends: sent for ends, sent in sorted(self.streams.items()) if sent},
            ),
            self.now,
            _DECIDES_NOTHING,
        )

    def check(self) -> None:
        """See `explore.World`: no page is leased and used anew."""
        for worker in self.workers.values():
            if not worker.alive:
                continue
            for page, content in worker.memory.contents.items():
                if page in worker.leases.pages and content == _FREE:
                    raise LawBroken(f"I20: page {page} of {worker.name} is leased and used anew")

    def check_end(self) -> None:
        """See `explore.World`: all requests are over, and nothing is left of them."""
        if not self.settled:
            raise LawBroken("I1: a request never ends")
        if len(self.book) or self.book.offers:
            raise LawBroken("I4: the book keeps something of requests that are over")
        for worker in self.workers.values():
            if worker.alive and not worker.idle:
                raise LawBroken(f"I4: {worker.name} keeps something of requests that are over")

    @property
    def settled(self) -> bool:
        """All requests are over for their clients."""
        return all(client.settled for client in self.clients.values())

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def _send(self, source: WorkerId, target: WorkerId, message: Message) -> None:
        if target == GATEWAY or self.workers[target].alive:
            self.streams.setdefault((source, target), []).append(message)
        elif source != GATEWAY:
            self.streams.setdefault((target, source), []).append(StreamEnded(target))

    def _crash(self, worker: HandoverWorker) -> None:
        self.crashes_left -= 1
        worker.alive = False
        for ends in list(self.streams):
            if ends[1] == worker.name:
                del self.streams[ends]
        self._send(worker.name, GATEWAY, StreamEnded(worker.name))
        for other in self.workers.values():
            if other is not worker and other.alive:
                self._send(worker.name, other.name, StreamEnded(worker.name))

    def _next_deadline(self) -> Seconds | None:
        times = [self.book.next_deadline()]
        times += [worker.next_deadline() for worker in self.workers.values() if worker.alive]
        return min((at for at in times if at is not None), default=None)

    def _jump(self) -> None:
        at = self._next_deadline()
        assert at is not None
        if len(self.moves()) > 1 and self.jumps_left:
            self.jumps_left -= 1
        self.now = max(self.now, at)
        for worker in self.workers.values():
            if worker.alive:
                worker.leases.expire(self.now)
                self._pull(worker, worker.puller.due(self.now))
        self._order(self.book.due(self.now))

    def _deliver(self, source: WorkerId, target: WorkerId) -> None:
        message = self.streams[source, target].pop(0)
        if target == GATEWAY:
            self._tell_gateway(message)
        else:
            self._tell_worker(self.workers[target], source, message)

    def _tell_gateway(self, message: Message) -> None:
        if isinstance(message, StreamEnded):
            lost = HealthChanged(message.worker, Health.LOST)
            self._order(self.book.observe(lost, self.now))
        else:
            self._order(self.book.heard(message, self.now))  # pyright: ignore[reportArgumentType]

    def _tell_worker(self, worker: HandoverWorker, source: WorkerId, message: Message) -> None:
        now = self.now
        match message:
            case StreamEnded(other):
                self._pull(worker, worker.puller.lost(self.workers[other].incarnation, now))
            case Dispatch(request, _, stage):
                self._take(worker, request, stage)
            case Adopt(request=request, offer=offer):
                self._adopt(worker, request, offer)
            case Abort(request, attempt):
                self._abort(worker, request, attempt)
            case GrantTo():
                self._grant(worker, message)
            case Renew(leases=leases):
                worker.leases.renew(leases, None, now)
            case Release(lease=lease):
                worker.leases.release(lease, now)
            case Ask():
                self._send(worker.name, source, self._answer(worker, message))
            case Answer(Take(request=request, attempt=attempt), (answer,)):
                self._pull(worker, worker.puller.taken(request, attempt, answer, now))
            case Answer(RenewTaken(), answers):
                self._pull(worker, worker.puller.renewed(answers, now))
            case _:
                pass

    # ── the gateway ──────────────────────────────────────────────────────────────────────────

    def _order(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Dispatch(worker=worker) | Adopt(worker=worker) | Abort(worker=worker):
                    self._send(GATEWAY, worker, command)
                case Grant(request=request, attempt=attempt, lease=lease, taker=taker):
                    taker_life = self.workers[taker].incarnation
                    grant = GrantTo(request, attempt, lease, taker_life)
                    self._send(GATEWAY, command.owner, grant)
                case Renew(owner=owner) | Release(owner=owner):
                    self._send(GATEWAY, owner, command)
                case Deliver(token):
                    self._hand(self.clients[token.request], token)
                case EndSequence(request=request):
                    self._end(self.clients[request], command)
                case Settle(record):
                    client = self.clients[record.request]
                    if client.settled:
                        raise LawBroken(f"I1: {record.request} is settled twice")
                    if record.outcome is not Outcome.FINISHED:
                        raise LawBroken(f"I19: {record.request} {record.outcome}: {record.message}")
                    client.settled = True
                case Drained():
                    pass

    def _hand(self, client: _Client, token: TokenGenerated) -> None:
        right = token_of(token.request, len(client.tokens))
        if client.ended or token.index != len(client.tokens) or token.token != right:
            raise LawBroken(f"I14: {token} comes after {client.tokens}")
        client.tokens.append(token.token)

    def _end(self, client: _Client, end: EndSequence) -> None:
        if client.ended or len(client.tokens) != OUTPUT_TOKENS:
            raise LawBroken(f"I18: {end} comes after {client.tokens}")
        client.ended = True

    # ── a worker ─────────────────────────────────────────────────────────────────────────────

    def _take(self, worker: HandoverWorker, request: Request, stage: Stage) -> None:
        worker.attempts[request.id] = request.attempt
        lease = None
        if stage is Stage.PREFILL:
            worker.offers += 1
            lease = LeaseId(f"{worker.incarnation}/{worker.offers}")
        worker.jobs.append(_Job(request, lease))
        admitted = Admitted(request=request.id, attempt=request.attempt)
        self._send(worker.name, GATEWAY, admitted)

    def _adopt(self, worker: HandoverWorker, request: Request, offer: Offer) -> None:
        worker.attempts[request.id] = request.attempt
        worker.adopted[request.id, request.attempt] = request
        self._send(worker.name, GATEWAY, Admitted(request=request.id, attempt=request.attempt))
        pages = tuple(PagePull(page, page.page) for page in offer.pages)
        pull = Pull(request=request.id, attempt=request.attempt, offer=offer, pages=pages)
        self._pull(worker, worker.puller.begin(pull, self.now))

    def _abort(self, worker: HandoverWorker, request: RequestId, attempt: int) -> None:
        if worker.attempts.get(request) != attempt:
            return
        worker.jobs = [job for job in worker.jobs if job.request.id != request]
        worker.adopted.pop((request, attempt), None)
        worker.leases.release_of(request)
        self._pull(worker, worker.puller.cancel(request, attempt, self.now))

    def _compute(self, worker: HandoverWorker) -> None:
        job = worker.jobs.pop(0)
        request = job.request
        first = len(request.resumed[0]) if request.resumed else 0
        last = OUTPUT_TOKENS if job.lease is None else first + 1
        self._say(
            worker,
            Started(request=request.id, attempt=request.attempt, cached_tokens=0, queued_s=0.0),
        )
        for index in range(first, last):
            self._say(
                worker,
                TokenGenerated(
                    request=request.id,
                    attempt=request.attempt,
                    sequence=0,
                    index=index,
                    token=token_of(request.id, index),
                ),
            )
        if last == OUTPUT_TOKENS:
            self._say(
                worker,
                SequenceEnded(
                    request=request.id,
                    attempt=request.attempt,
                    sequence=0,
                    reason=FinishReason.LENGTH,
                ),
            )
        elif job.lease is not None:
            self._say(worker, worker.offer(request, job.lease, self.now))

    def _say(self, worker: HandoverWorker, fact: Message) -> None:
        self._send(worker.name, GATEWAY, fact)

    def _grant(self, worker: HandoverWorker, order: GrantTo) -> None:
        refused: LeaseRefusal | None = None
        match worker.leases.grant(order.lease, order.taker, order.attempt, self.now):
            case LeaseHeld():
                worker.granted[order.lease] = (order.taker, order.attempt)
            case LeaseRefused(reason=reason):
                refused = reason
        self._say(
            worker,
            GrantAnswered(
                request=order.request, attempt=order.attempt, lease=order.lease, refused=refused
            ),
        )

    def _answer(self, worker: HandoverWorker, ask: Ask) -> Answer:
        command, taker, now = ask.command, ask.taker, self.now
        match command:
            case Take(lease=lease, attempt=attempt):
                answers = (worker.leases.take(lease, taker, attempt, now),)
                self._check_taker(worker, lease, taker, attempt, answers[0])
            case RenewTaken(leases=leases):
                answers = tuple(worker.leases.renew(leases, taker, now))
            case Acknowledge(lease=lease, attempt=attempt):
                answers = (worker.leases.acknowledge(lease, taker, attempt, now),)
                self._check_taker(worker, lease, taker, attempt, answers[0])
        return Answer(command, answers)

    def _check_taker(
        self,
        worker: HandoverWorker,
        lease: LeaseId,
        taker: Incarnation,
        attempt: int,
        answer: LeaseHeld | LeaseRefused,
    ) -> None:
        if isinstance(answer, LeaseHeld) and worker.granted.get(lease) != (taker, attempt):
            raise LawBroken(f"I21: {taker} takes {lease} in attempt {attempt}, which it has not")

    # ── a taker ──────────────────────────────────────────────────────────────────────────────

    def _pull(self, worker: HandoverWorker, commands: Iterable[PullCommand]) -> None:
        for command in commands:
            match command:
                case Take() | RenewTaken() | Acknowledge():
                    ask = Ask(command, worker.incarnation)
                    self._send(worker.name, command.owner.worker, ask)
                case Copy(pull):
                    memory = self.workers[pull.offer.owner].memory
                    worker.copying[pull.request, pull.attempt] = _Copying(pull, memory)
                case StopCopy(request=request, attempt=attempt):
                    worker.copying[request, attempt].unwanted = True
                case PullEnded():
                    self._pulled(worker, command)

    def _read(self, worker: HandoverWorker, key: tuple[RequestId, int]) -> None:
        copying = worker.copying[key]
        pages = copying.pull.pages
        if not copying.unwanted:
            page = pages[len(copying.good)].source
            content = copying.memory.read(page)
            copying.good.append(content is not None)
            wanted = _SHARED if page.page == 0 else copying.pull.request
            if content is not None and content != wanted:
                raise LawBroken(f"I20: {key} reads {content} from page {page.page}")
        if copying.unwanted or len(copying.good) == len(pages):
            del worker.copying[key]
            good = (*copying.good, *(False,) * (len(pages) - len(copying.good)))
            self._pull(worker, worker.puller.copied(*key, good, "", self.now))

    def _pulled(self, worker: HandoverWorker, end: PullEnded) -> None:
        request = worker.adopted.pop((end.request, end.attempt), None)
        if request is None:
            return
        self._say(
            worker,
            Pulled(
                request=end.request,
                attempt=end.attempt,
                pulled_tokens=sum(end.good),
                cached_tokens=0,
                missing_tokens=len(end.good) - sum(end.good),
                problem=end.problem,
            ),
        )
        worker.jobs.append(_Job(request, None))


_DECIDES_NOTHING = frozenset(
    {
        *("started_at", "routed_at", "offered_at", "adopted_at", "pulled_at", "began_at"),
        *("_first_token_at", "_last_token_at", "_arrived_at", "arrived_at"),
        *("preemptions", "pulled_tokens", "recomputed_tokens", "exact", "numerics"),
        *("_routes", "_attempts", "_message", "_cached_tokens", "_dropped", "expired_total"),
        *("seconds", "problem", "queued_s", "reason", "message"),
    }
)
"""Counts and stamps of records, and words for people."""


def explorations(
    bounds: Bounds, parts: HandoverParts = STANDARD_HANDOVER_PARTS
) -> list[HandoverWorld]:
    """One world for each choice of workers that symmetry leaves open."""
    others = [
        (prefill, decode)
        for prefill in range(min(2, bounds.prefill))
        for decode in range(min(2, bounds.decode))
    ]
    choices: list[list[tuple[int, int]]] = [[(0, 0)]]
    for _ in range(bounds.requests - 1):
        choices = [[*before, one] for before in choices for one in others]
    return [HandoverWorld(bounds, one, parts) for one in choices]


__all__ = ["Bounds", "HandoverParts", "HandoverWorld", "explorations", "replace"]
