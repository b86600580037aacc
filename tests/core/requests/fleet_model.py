"""What must be true of a book's commands, checked on each as it comes.

The model knows what every worker was given and has said, and nothing of how the book decides.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.types import (
    Abort,
    Adopt,
    Command,
    Deliver,
    Dispatch,
    Drained,
    EndSequence,
    FinishReason,
    FleetEvent,
    Grant,
    Health,
    HealthChanged,
    Hold,
    Incarnation,
    LeaseId,
    Offer,
    Outcome,
    Rejected,
    RejectReason,
    Release,
    Renew,
    Request,
    RequestId,
    Route,
    Settle,
    Stage,
    TokenGenerated,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)

MAX_TOKENS = 5
RENEWAL_S = 3.0


class WilfulRouter:
    """Implements `Routing`: chooses by chance among those it may choose, holds, and rejects."""

    def __init__(self) -> None:
        self.chance = random.Random(0)
        self.kind = False
        """Sends every request to some worker, whole."""
        self.healths: dict[WorkerId, Health] = {}
        self.loads: set[RequestId] = set()
        self.refused_offers: list[RequestId] = []

    @property
    def takers(self) -> list[WorkerId]:
        return [
            worker
            for worker, health in self.healths.items()
            if health in (Health.JOINED, Health.SUSPECT)
        ]

    def observe(self, event: FleetEvent, now: float) -> None:
        match event:
            case WorkerJoined(info):
                self.healths[info.id] = Health.JOINED
            case HealthChanged(worker, Health.LOST):
                del self.healths[worker]
            case HealthChanged(worker, health):
                assert worker in self.healths
                self.healths[worker] = health
            case _:
                pass

    def in_vain(
        self, request: Request, now: float, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        assert not any(request.resumed), "something of it was delivered"
        assert ahead_requests >= 0 <= ahead_tokens
        if self.kind or self.chance.random() > 0.1:
            return None
        reason = self.chance.choice([RejectReason.TTFT_UNREACHABLE, RejectReason.TPOT_UNREACHABLE])
        return Rejected(request=request.id, reason=reason, message="by chance")

    def choose(
        self, request: Request, now: float, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        assert request.id not in self.loads, "the last choice was not taken back"
        if (answer := self._nobody(request, now)) is not None:
            return answer
        self.loads.add(request.id)
        prefill, decode = self.chance.choices(self.takers, k=2)
        prefill = prefill if self.chance.random() < 0.3 else self.takers[0]
        whole |= self.kind or self.chance.random() < 0.3
        return Route(
            request=request.id,
            prefill=None if whole else prefill,
            decode=decode,
            reason="by chance",
        )

    def choose_decode(
        self, offer: Offer, request: Request, now: float
    ) -> WorkerId | Hold | Rejected:
        if (answer := self._nobody(request, now)) is not None:
            if isinstance(answer, Rejected):
                self.refused_offers.append(request.id)
            return answer
        self.loads.add(request.id)
        return self.chance.choice(self.takers)

    def prefilled(self, request: RequestId, now: float) -> None:
        assert request in self.loads

    def fetched(self, request: RequestId, missing_tokens: int, seconds: float, now: float) -> None:
        assert request in self.loads

    def refused(self, worker: WorkerId, now: float) -> None:
        assert worker

    def settled(self, request: RequestId, now: float, *, again: bool = False) -> None:
        self.loads.discard(request)

    def _nobody(self, request: Request, now: float) -> Hold | Rejected | None:
        say = self.chance.random()
        if not self.takers or (say < 0.25 and not self.kind):
            at = now + self.chance.choice([-1.0, 0.5, 2.0, 5.0])
            return Hold(request=request.id, reason="by chance", ask_again_at=at)
        if say < 0.3 and not self.kind:
            return Rejected(request=request.id, reason=RejectReason.NO_WORKER, message="by chance")
        return None


@dataclass
class Holder:
    """A worker that has a request, and the sequences that it owes an end."""

    worker: WorkerId
    request: Request
    prefill: bool
    owes: set[int]
    adopted: bool = False
    to_pull: Offer | None = None
    begun: bool = False
    """It has said that it works for the request."""


@dataclass
class Client:
    """One request: what was delivered, where it is, and how its attempts ended."""

    request: Request
    now: Request
    delivered: dict[int, list[TokenGenerated]] = field(default_factory=dict)
    ends: dict[int, FinishReason] = field(default_factory=dict)
    holder: Holder | None = None
    grant: Grant | None = None
    granted: bool = False
    offer: Offer | None = None
    gained: bool = False
    """The current attempt has given a token."""
    fruitless: int = 0
    raises_paid: int = 0

    def failed(self) -> None:
        """An attempt was ended by a fault of its worker, or by its death after it had begun."""
        self.fruitless += not self.gained
        self.gained = False

    @property
    def open(self) -> list[int]:
        return [k for k in range(self.request.sampling.n) if k not in self.ends]

    def tokens(self, sequence: int) -> tuple[int, ...]:
        return tuple(token.token for token in self.delivered.get(sequence, []))

    @property
    def resumed(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.tokens(k) for k in range(self.request.sampling.n))


class FleetModel:
    """Executes commands against imaginary workers."""

    def __init__(self, router: WilfulRouter) -> None:
        self.router = router
        self.now = 0.0
        self.alive: dict[WorkerId, WorkerInfo] = {}
        self.clients: dict[RequestId, Client] = {}
        self.gone: list[Client] = []
        self.settled: set[RequestId] = set()
        self.leases: dict[tuple[WorkerId, LeaseId], float] = {}
        """Offers that were heard of and have not ended, and when they were renewed last."""
        self.sent: set[TokenGenerated] = set()
        self.drains: dict[WorkerId, float] = {}
        self.lives: dict[WorkerId, Incarnation] = {}

    def run(self, commands: Sequence[Command]) -> Sequence[Command]:
        for id in self.router.refused_offers:  # the book gives such an offer up and begins anew
            self.clients[id].raises_paid += 1
        self.router.refused_offers.clear()
        for command in commands:
            self._one(command)
        return commands

    def _one(self, command: Command) -> None:
        match command:
            case Dispatch(request, worker, stage):
                self._dispatched(request, worker, stage)
            case Grant():
                self._grant(command)
            case Adopt():
                self._adopt(command)
            case Renew(owner=owner, leases=leases):
                assert owner in self.alive, "a dead owner hears nothing"
                for lease in leases:
                    assert (owner, lease) in self.leases, "renewed a lease that is over"
                    self.leases[owner, lease] = self.now
            case Release(owner=owner, lease=lease):
                assert owner in self.alive, "a dead owner hears nothing"
                assert self.leases.pop((owner, lease), None) is not None, "released twice"
                for client in self.clients.values():
                    if client.offer and (client.offer.owner, client.offer.lease) == (owner, lease):
                        client.offer = None
            case Abort():
                self._abort(command)
            case Deliver(token):
                self._deliver(token)
            case EndSequence(request=request, sequence=sequence, reason=reason):
                client = self.clients[request]  # gone once it is settled: KeyError
                assert sequence in client.open
                client.ends[sequence] = reason
            case Settle():
                self._settle(command)
            case Drained(worker):
                assert worker in self.drains, "nobody asked for this"
                del self.drains[worker]
                for client in self.clients.values():
                    assert self.workers_of(client).isdisjoint({worker}), "it is not empty"

    def workers_of(self, client: Client) -> set[WorkerId]:
        workers: set[WorkerId] = set()
        if client.holder:
            workers.add(client.holder.worker)
        if client.grant:
            workers.add(client.grant.taker)
        if client.offer:
            workers.add(client.offer.owner)
        return workers

    def _handed_out(self, client: Client, request: Request, worker: WorkerId) -> None:
        assert worker in self.router.takers, "what can't take requests is given none"
        assert client.holder is None, "two workers have the same request"
        assert client.request.id not in self.settled
        if client.delivered or client.ends:
            assert request.resumed == client.resumed, "the resume point is lost"
            assert request.done == tuple(sorted(client.ends)), "what has ended would run again"

    def _raised(self, client: Client, attempt: int) -> None:
        """Attempts rise by what has happened, and by nothing else."""
        raised = attempt - client.now.attempt
        assert 0 <= raised <= client.raises_paid, "an attempt that nothing called for"
        client.raises_paid = 0
        client.gained = client.gained and not raised

    def _dispatched(self, request: Request, worker: WorkerId, stage: Stage) -> None:
        client = self.clients[request.id]
        assert client.grant is None
        assert client.offer is None, "its KV is still offered"
        self._raised(client, request.attempt)
        self._handed_out(client, request, worker)
        client.now = request
        owes = set(client.open)
        client.holder = Holder(worker, request, stage is Stage.PREFILL, owes)

    def _grant(self, grant: Grant) -> None:
        client = self.clients[grant.request]
        self._raised(client, grant.attempt)
        assert grant.owner in self.alive
        assert (grant.owner, grant.lease) in self.leases, "granted a lease that is over"
        assert grant.taker in self.router.takers
        assert client.holder is None
        assert client.grant is None, "granted twice"
        client.grant, client.granted = grant, False
        client.now = Request(
            id=client.request.id,
            prompt=client.request.prompt,
            sampling=client.request.sampling,
            attempt=grant.attempt,
        )

    def _adopt(self, adopt: Adopt) -> None:
        client = self.clients[adopt.request.id]
        assert client.grant is not None
        assert client.granted, "adopted before the owner agreed"
        assert (client.grant.taker, client.grant.lease) == (adopt.worker, adopt.offer.lease)
        assert adopt.request.attempt == client.grant.attempt
        assert adopt.worker in self.alive
        assert client.holder is None
        assert adopt.request.resumed == client.resumed, "the resume point is lost"
        assert adopt.request.done == tuple(sorted(client.ends))
        client.now, client.grant = adopt.request, None
        client.holder = Holder(
            adopt.worker, adopt.request, False, set(client.open), True, adopt.offer
        )

    def _abort(self, abort: Abort) -> None:
        client = self.clients[abort.request]
        assert abort.worker in self.alive
        assert abort.attempt == client.now.attempt
        assert client.holder is not None
        assert client.holder.worker == abort.worker, "aborts where the request is not"
        if abort.sequence is None:
            client.holder = None
        else:
            client.holder.owes.discard(abort.sequence)

    def _deliver(self, token: TokenGenerated) -> None:
        client = self.clients[token.request]
        assert token.attempt == client.now.attempt, "a token of an attempt that is over"
        assert client.holder is not None, "a token from nobody"
        assert token.sequence in client.open
        assert token.index == len(client.delivered.get(token.sequence, [])) < MAX_TOKENS
        assert token in self.sent
        client.delivered.setdefault(token.sequence, []).append(token)
        client.fruitless = 0
        client.gained = True

    def _settle(self, settle: Settle) -> None:
        record = settle.record
        client = self.clients.pop(record.request)
        assert record.request not in self.settled, "settled twice"
        self.settled.add(record.request)
        self.gone.append(client)
        if settle.rejected is None or client.delivered or client.ends:
            assert client.open == []
            assert record.finish_reasons == tuple(
                client.ends[k] for k in range(client.request.sampling.n)
            )
        else:
            assert record.finish_reasons == ()
            assert record.outcome is Outcome.REJECTED
        if client.holder is not None:
            assert not client.holder.owes, "a worker goes on with what is over"
        assert client.fruitless <= 3
        if "attempts in a row" in record.message:
            assert client.fruitless == 3, "what no worker is to blame for was counted"
        assert record.output_tokens == sum(map(len, client.delivered.values()))
        stamps = (record.started_at, record.first_token_at, record.last_token_at)
        reached = [record.arrived_at, *(s for s in stamps if s is not None), record.ended_at]
        assert reached == sorted(reached)

    # ── what happens to workers ──────────────────────────────────────────────────────────────

    def joined(self, info: WorkerInfo) -> None:
        if info.id in self.alive:
            self.lost(info.id)
        self.alive[info.id] = info

    def lost(self, worker: WorkerId) -> None:
        """To be called before the book hears of it."""
        self.alive.pop(worker, None)
        for owner, lease in [key for key in self.leases if key[0] == worker]:
            del self.leases[owner, lease]
        for client in self.clients.values():
            self._leave(client, worker, dead=True)

    def overdue(self) -> None:
        """What is on workers that are to be empty by now may be moved, once."""
        for worker in [name for name, until in self.drains.items() if until <= self.now]:
            self._overdue(worker)

    def _overdue(self, worker: WorkerId) -> None:
        for client in self.clients.values():
            if worker in self.workers_of(client):
                client.raises_paid += 1
                if client.grant is not None:
                    client.grant = None

    def _leave(self, client: Client, worker: WorkerId, *, dead: bool) -> None:
        over = fruitless = False
        if client.offer and client.offer.owner == worker:
            client.offer = None
            over = client.holder is None
            if client.grant:
                client.grant = None
        if client.grant and client.grant.taker == worker:
            client.grant = None
            over = True
        if client.holder and client.holder.worker == worker:
            fruitless = client.holder.begun or client.holder.adopted
            client.holder, over = None, True
        if over:
            client.raises_paid += 1
            if fruitless:
                client.failed()
