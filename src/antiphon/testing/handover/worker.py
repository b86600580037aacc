"""A worker of the model: the real lease book and puller, and jobs instead of a scheduler."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
from antiphon.sim.law import LawBroken
from antiphon.types import (
    Abort,
    Adopt,
    Dispatch,
    FinishReason,
    GrantAnswered,
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Offer,
    OfferedPage,
    OfferedSequence,
    Pull,
    Pulled,
    Release,
    Renew,
    Request,
    RequestId,
    Seconds,
    SequenceEnded,
    Stage,
    Started,
    TokenGenerated,
    WorkerId,
)

from .facts import (
    ANSWER_S,
    GATEWAY,
    KV,
    MODEL,
    OUTPUT_TOKENS,
    PROMPT,
    TTL_S,
    Answer,
    Ask,
    GrantTo,
    StreamEnded,
    incarnation_of,
    token_of,
)
from .owner_memory import FREE, SHARED, OwnerMemory

Send: TypeAlias = Callable[[WorkerId, object], None]
PullKey: TypeAlias = tuple[RequestId, int]


@dataclass(slots=True, eq=False)
class _Copying:
    pull: Pull
    unwanted: bool = False


@dataclass(slots=True, eq=False)
class HandoverWorker:
    """What one worker has. Every method may send, by the callable that it is given."""

    name: WorkerId
    memory: OwnerMemory
    leases: LeaseBook
    puller: Puller
    jobs: list[Request] = field(default_factory=list)
    """Adopted and pulled: all that is left of these is to be computed."""
    adopted: dict[PullKey, Request] = field(default_factory=dict)
    copying: dict[PullKey, _Copying] = field(default_factory=dict)
    pulling: dict[PullKey, WorkerId] = field(default_factory=dict)
    """Owners of the pulls that have not ended."""
    spoilt: list[PullKey] = field(default_factory=list)
    """Pulls that read something else than was offered, and have not ended."""
    attempts: dict[RequestId, int] = field(default_factory=dict)
    offered: dict[LeaseId, RequestId] = field(default_factory=dict)
    granted: dict[LeaseId, tuple[Incarnation, int]] = field(default_factory=dict)
    """To whom the gateway's last word gave each lease: what the lease book should know."""

    @property
    def idle(self) -> bool:
        """Nothing is left here."""
        left = (self.jobs, self.adopted, self.copying, self.puller, self.leases)
        return not any(map(len, left)) and not any(self.memory.references.values())

    @property
    def pulls_from(self) -> tuple[WorkerId, ...]:
        """Whose death would matter here."""
        return tuple(self.pulling.values())

    def next_deadline(self) -> Seconds | None:
        """When time changes something here."""
        times = (self.leases.next_deadline(), self.puller.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def tidy(self) -> None:
        """Mutates: forget what can't matter any more, so that states that differ in it are one."""
        for lease in [lease for lease in self.granted if lease not in self.leases]:
            del self.granted[lease]
        for lease in [lease for lease in self.offered if lease not in self.leases]:
            del self.offered[lease]
        here = {job.id for job in self.jobs} | {request for request, _ in self.pulling}
        here.update(self.offered.values())
        for request in [request for request in self.attempts if request not in here]:
            del self.attempts[request]

    def check(self) -> None:
        """No page is leased and used anew."""
        for page, content in self.memory.contents.items():
            if page in self.leases.pages and content == FREE:
                raise LawBroken(f"I22: page {page} of {self.name} is leased and used anew")

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def hear(self, source: WorkerId, message: object, now: Seconds, send: Send) -> None:
        """A message arrives."""
        match message:
            case StreamEnded(other):
                self._pull(self.puller.lost(incarnation_of(other), now), send)
            case Dispatch(request, _, Stage.PREFILL):
                self._prefill(request, now, send)
            case Dispatch(request):
                self.attempts[request.id] = request.attempt
                self.jobs.append(request)
            case Adopt(request=request, offer=offer):
                self._adopt(request, offer, now, send)
            case Abort(request, attempt):
                self._abort(request, attempt, now, send)
            case GrantTo():
                self._grant(message, now, send)
            case Renew(leases=leases):
                self.leases.renew(leases, None, now)
            case Release(lease=lease):
                self.leases.release(lease, now)
            case Ask():
                self._answer(source, message, now, send)
            case Answer(Take(request=request, attempt=attempt), (answer,)):
                self._pull(self.puller.taken(request, attempt, answer, now), send)
            case Answer(_, answers):
                self._pull(self.puller.renewed(answers, now), send)
            case _:
                raise LawBroken(f"{self.name} is told {message}")

    def due(self, now: Seconds, send: Send) -> None:
        """Time has passed."""
        self.leases.expire(now)
        self._pull(self.puller.due(now), send)

    def compute(self, send: Send) -> None:
        """All that is left of the first job, in one pass."""
        request = self.jobs.pop(0)
        first = len(request.resumed[0]) if request.resumed else 0
        self._draw(request, first, OUTPUT_TOKENS, send)

    def read(self, key: PullKey, memory: OwnerMemory, now: Seconds, send: Send) -> None:
        """Copy the pages of a pull, or stop if nobody wants them."""
        copying = self.copying.pop(key)
        good: list[bool] = []
        for page in copying.pull.pages:
            content = None if copying.unwanted else memory.read(page.source)
            good.append(content is not None)
            wanted = SHARED if page.source.page == 0 else copying.pull.request
            if content not in (None, wanted):
                self.spoilt.append(key)
        self._pull(self.puller.copied(*key, tuple(good), "", now), send)

    # ── as an owner ──────────────────────────────────────────────────────────────────────────

    def _prefill(self, request: Request, now: Seconds, send: Send) -> None:
        self.attempts[request.id] = request.attempt
        first = len(request.resumed[0]) if request.resumed else 0
        self._draw(request, first, first + 1, send)
        if first + 1 < OUTPUT_TOKENS:
            send(GATEWAY, self._offer(request, now))

    def _draw(self, request: Request, first: int, end: int, send: Send) -> None:
        id, attempt = request.id, request.attempt
        send(GATEWAY, Started(request=id, attempt=attempt, cached_tokens=0, queued_s=0.0))
        for index in range(first, end):
            token = TokenGenerated(
                request=id, attempt=attempt, sequence=0, index=index, token=token_of(id, index)
            )
            send(GATEWAY, token)
        if end == OUTPUT_TOKENS:
            reason = FinishReason.LENGTH
            send(GATEWAY, SequenceEnded(request=id, attempt=attempt, sequence=0, reason=reason))

    def _offer(self, request: Request, now: Seconds) -> Offer:
        lease = LeaseId(f"{self.name}/{request.id}.{request.attempt}")
        table = self.memory.prefill(request.id, request.attempt)
        self.offered[lease] = request.id
        self.leases.offer(lease, request.id, request.attempt, table, now)
        tokens = len(PROMPT) + len(request.resumed[0] if request.resumed else ())
        return Offer(
            request=request.id,
            attempt=request.attempt,
            lease=lease,
            ttl_s=TTL_S,
            owner=self.name,
            incarnation=incarnation_of(self.name),
            kv=KV,
            numerics=MODEL.numerics,
            pages=tuple(OfferedPage(page, self.memory.generations[page], 0) for page in table),
            sequences=(OfferedSequence(0, tokens, table),),
        )

    def _abort(self, request: RequestId, attempt: int, now: Seconds, send: Send) -> None:
        if self.attempts.get(request) != attempt:
            return
        self.jobs = [job for job in self.jobs if job.id != request]
        self.adopted.pop((request, attempt), None)
        self.leases.release_of(request)
        self._pull(self.puller.cancel(request, attempt, now), send)

    def _grant(self, order: GrantTo, now: Seconds, send: Send) -> None:
        refused: LeaseRefusal | None = None
        match self.leases.grant(order.lease, order.taker, order.attempt, now):
            case LeaseHeld():
                self.granted[order.lease] = (order.taker, order.attempt)
            case LeaseRefused(reason=reason):
                refused = reason
        send(
            GATEWAY,
            GrantAnswered(
                request=order.request, attempt=order.attempt, lease=order.lease, refused=refused
            ),
        )

    def _answer(self, source: WorkerId, ask: Ask, now: Seconds, send: Send) -> None:
        taker = ask.taker
        match ask.command:
            case Take(lease=lease, attempt=attempt) as take:
                answer = self.leases.take(lease, taker, attempt, now)
                self._check_taker(lease, taker, attempt, answer)
                send(source, Answer(take, (answer,)))
            case RenewTaken(leases=leases) as renewal:
                send(source, Answer(renewal, tuple(self.leases.renew(leases, taker, now))))
            case Acknowledge(lease=lease, attempt=attempt):
                answer = self.leases.acknowledge(lease, taker, attempt, now)
                self._check_taker(lease, taker, attempt, answer)

    def _check_taker(
        self, lease: LeaseId, taker: Incarnation, attempt: int, answer: LeaseHeld | LeaseRefused
    ) -> None:
        if isinstance(answer, LeaseHeld) and self.granted.get(lease) != (taker, attempt):
            raise LawBroken(f"I23: {taker} has {lease} in attempt {attempt}, ungranted")

    # ── as a taker ───────────────────────────────────────────────────────────────────────────

    def _adopt(self, request: Request, offer: Offer, now: Seconds, send: Send) -> None:
        self.attempts[request.id] = request.attempt
        self.adopted[request.id, request.attempt] = request
        self.pulling[request.id, request.attempt] = offer.owner
        targets = tuple(page.page for page in offer.pages)
        pull = Pull(
            request=request.id,
            attempt=request.attempt,
            offer=offer,
            sources=offer.pages,
            targets=targets,
        )
        self._pull(self.puller.begin(pull, now), send)

    def _pull(self, commands: Iterable[PullCommand], send: Send) -> None:
        for command in commands:
            match command:
                case Take() | RenewTaken() | Acknowledge():
                    send(command.owner.worker, Ask(command, incarnation_of(self.name)))
                case Copy(pull):
                    self.copying[pull.request, pull.attempt] = _Copying(pull)
                case StopCopy(request=request, attempt=attempt):
                    self.copying[request, attempt].unwanted = True
                case PullEnded():
                    self._pulled(command, send)

    def _pulled(self, end: PullEnded, send: Send) -> None:
        key = (end.request, end.attempt)
        del self.pulling[key]
        if key in self.spoilt:
            self.spoilt.remove(key)
            if any(end.good):
                raise LawBroken(f"I19: {key} goes on with pages that hold something else")
        request = self.adopted.pop((end.request, end.attempt), None)
        if request is None:
            return
        good = sum(end.good)
        pulled = Pulled(
            request=end.request,
            attempt=end.attempt,
            pulled_tokens=good,
            cached_tokens=0,
            missing_tokens=len(end.good) - good,
        )
        send(GATEWAY, pulled)
        self.jobs.append(request)


def new_worker(
    name: WorkerId,
    memory: OwnerMemory,
    leases: type[LeaseBook],
    puller: type[Puller],
) -> HandoverWorker:
    """A worker that has just started."""
    return HandoverWorker(
        name=name,
        memory=memory,
        leases=leases(memory.drop, ttl_s=TTL_S),
        puller=puller(answer_s=ANSWER_S, margin_s=TTL_S / 10),
    )
