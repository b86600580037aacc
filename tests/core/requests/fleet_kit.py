"""A fleet for tests: workers that exist by name, and a router that says what it is told to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.core.requests import RequestBook
from antiphon.testing.honest_offer import honest_offer
from antiphon.testing.strategies import MODEL
from antiphon.types import (
    Command,
    FleetEvent,
    Hold,
    Incarnation,
    KvShape,
    ModelInfo,
    Offer,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Role,
    Route,
    Settle,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)

KV = KvShape(layout="rows", page_tokens=2, block_tokens=4, page_bytes=8, pages=64)
TTL_S = 9.0


def worker_info(
    name: str, *, life: str = "1", role: Role = Role.MIXED, numerics: str = MODEL.numerics
) -> WorkerInfo:
    model = ModelInfo(
        name=MODEL.name,
        identity=MODEL.identity,
        numerics=numerics,
        vocab_size=MODEL.vocab_size,
        context_len=MODEL.context_len,
        eos_token_ids=MODEL.eos_token_ids,
        kv_bytes_per_token=MODEL.kv_bytes_per_token,
    )
    return WorkerInfo(
        id=WorkerId(name),
        incarnation=Incarnation(f"{name}-life-{life}"),
        model=model,
        max_model_len=64,
        role=role,
        kv=KV,
    )


@dataclass
class ScriptedRouter:
    """Implements `Routing`. `routes` and `takers` are what it says next; the last one stays."""

    routes: list[tuple[str | None, str] | Hold | Rejected] = field(default_factory=list)
    takers: list[str | Hold | Rejected] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    seen: list[FleetEvent] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    vain: dict[RequestId, Rejected] = field(default_factory=dict)
    """Whom to refuse early."""
    ahead: list[tuple[RequestId, int, int]] = field(default_factory=list)
    """What it was told of those before each that it was asked about."""

    def observe(self, event: FleetEvent, now: float) -> None:
        self.seen.append(event)

    def in_vain(
        self, request: Request, now: float, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        self.ahead.append((request.id, ahead_requests, ahead_tokens))
        return self.vain.get(request.id)

    def choose(
        self, request: Request, now: float, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        self.calls.append(("choose", request.id))
        self.asked.append(request)
        answer = self.routes.pop(0) if len(self.routes) > 1 else self.routes[0]
        if not isinstance(answer, tuple):
            return answer
        prefill = None if answer[0] is None or whole else WorkerId(answer[0])
        return Route(
            request=request.id, prefill=prefill, decode=WorkerId(answer[1]), reason="script"
        )

    def choose_decode(
        self, offer: Offer, request: Request, now: float
    ) -> WorkerId | Hold | Rejected:
        self.calls.append(("choose_decode", request.id))
        self.asked.append(request)
        answer = self.takers.pop(0) if len(self.takers) > 1 else self.takers[0]
        return WorkerId(answer) if isinstance(answer, str) else answer

    def prefilled(self, request: RequestId, now: float) -> None:
        self.calls.append(("prefilled", request))

    def fetched(self, request: RequestId, missing_tokens: int, seconds: float, now: float) -> None:
        self.calls.append(("fetched", request))

    def refused(self, worker: WorkerId, now: float) -> None:
        assert worker

    def settled(self, request: RequestId, now: float, *, again: bool = False) -> None:
        self.calls.append(("settled", request))


def hold(at: float = 1.0) -> Hold:
    return Hold(request=RequestId("r1"), reason="nobody has room", ask_again_at=at)


def no_worker() -> Rejected:
    return Rejected(request=RequestId("r1"), reason=RejectReason.NO_WORKER, message="all are gone")


def book_of(
    router: ScriptedRouter, *workers: str | WorkerInfo, max_held: int = 4096
) -> RequestBook:
    book = RequestBook(router, max_held=max_held)
    for worker in workers:
        info = worker_info(worker) if isinstance(worker, str) else worker
        assert book.observe(WorkerJoined(info), 0.0) == ()
    return book


def offer_of(
    request: Request,
    info: WorkerInfo,
    *,
    lease: str = "lease-1",
    sequences: Sequence[int] | None = None,
    ttl_s: float = TTL_S,
) -> Offer:
    """What an honest worker offers once it has computed the prompt of `request`."""
    return honest_offer(request, info, lease=lease, ttl_s=ttl_s, sequences=sequences)


def settle_of(commands: Sequence[Command]) -> Settle:
    settles = [command for command in commands if isinstance(command, Settle)]
    assert len(settles) == 1, commands
    return settles[0]
