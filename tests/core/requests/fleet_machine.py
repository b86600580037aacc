"""A request book among clients, workers and time, as a state machine: its driver and its laws."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleet_kit import worker_info
from fleet_model import MAX_TOKENS, RENEWAL_S, Client, FleetModel, WilfulRouter
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from antiphon.core.requests import RequestBook
from antiphon.core.requests.facts import Fact
from antiphon.core.requests.parts import STANDARD_PARTS, Parts
from antiphon.types import (
    Admitted,
    Command,
    Event,
    FinishReason,
    GrantAnswered,
    Rejected,
    RejectReason,
    Release,
    Request,
    RequestId,
    Role,
    SamplingParams,
    Settle,
    TokenGenerated,
    WorkerId,
    WorkerJoined,
    WorkerReported,
    WorkerView,
)

_ZEROS: dict[str, Any] = dict.fromkeys(WorkerView.__dataclass_fields__, 0) | {
    "expert_tokens": None,
    "links": None,
}
VIEW = replace(WorkerView(**_ZEROS), total_pages=64)
EOS = 0
NAMES = ("a", "b", "c", "d")
reasons = st.sampled_from(FinishReason)
refusals = st.sampled_from([*RejectReason, RejectReason.QUEUE_FULL, RejectReason.DRAINING])
picks = st.integers(0, 10_000)
names = st.sampled_from(NAMES).map(WorkerId)


def any_open(machine: "FleetMachine") -> bool:
    """A precondition of rules."""
    return bool(machine.model.clients)


class FleetMachine(RuleBasedStateMachine):
    """What clients do, how time passes, and who joins; `fleet_model` checks each command.

    Workers do nothing yet.
    """

    parts: Parts = STANDARD_PARTS

    def __init__(self) -> None:
        super().__init__()
        self.model = FleetModel(self.router())
        self.book = RequestBook(self.model.router, max_held=3, parts=self.parts)
        self.said: list[Event] = []
        self.count = 0

    def router(self) -> WilfulRouter:
        return WilfulRouter()

    # ── the driver ───────────────────────────────────────────────────────────────────────────

    def hear(self, fact: Fact) -> Sequence[Command]:
        if not isinstance(fact, Admitted | Rejected | GrantAnswered):
            self.said.append(fact)
        if isinstance(fact, TokenGenerated):
            self.model.sent.add(fact)
            self.misses(fact)
        before = sum(self.book.dropped.values())
        commands = self.model.run(self.book.heard(fact, self.model.now))
        lost = sum(self.book.dropped.values()) - before
        assert lost in (0, 1)
        if lost:
            effects = [command for command in commands if not isinstance(command, Release)]
            assert not effects, "a dropped fact must have no effect"
        return commands

    def misses(self, token: TokenGenerated) -> None:
        """If tokens before this one were lost, its attempt is over."""
        client = self.model.clients.get(token.request)
        if client is None or client.holder is None or client.now.attempt != token.attempt:
            return
        if token.sequence in client.open and token.index > len(client.tokens(token.sequence)):
            client.raises_paid += 1
            client.failed()

    def tick(self, target: float) -> None:
        model = self.model
        while (at := self.book.next_deadline()) is not None and at <= target:
            model.now = max(model.now, at)
            model.overdue()
            model.run(self.book.due(model.now))
            following = self.book.next_deadline()
            assert following is None or following > model.now, "a busy loop"
        model.now = target
        model.overdue()
        model.run(self.book.due(model.now))

    def pick(self, pick: int) -> Client:
        return list(self.model.clients.values())[pick % len(self.model.clients)]

    def serial(self) -> int:
        self.count += 1
        return self.count

    # ── clients and time ─────────────────────────────────────────────────────────────────────

    @initialize(seed=picks)
    def first(self, seed: int) -> None:
        self.model.router.chance = random.Random(seed)
        for name in NAMES[:2]:
            self.joins(WorkerId(name))
        for n in (2, 1, 1):
            self.start(n=n, patience=None, priority=0)

    @rule(
        n=st.integers(1, 3),
        patience=st.none() | st.integers(-1, 20),
        priority=st.integers(0, 1),
    )
    def start(self, n: int, patience: int | None, priority: int) -> None:
        request = Request(
            id=RequestId(f"r{self.serial()}"),
            prompt=(1,),
            sampling=SamplingParams(n=n, max_tokens=MAX_TOKENS, seed=0),
            eos_token_ids=(EOS,),
            priority=priority,
            deadline=None if patience is None else self.model.now + patience,
        )
        self.model.clients[request.id] = Client(request, request)
        commands = self.model.run(self.book.start(request, self.model.now))
        if patience is not None and patience <= 0:
            assert [type(command) for command in commands] == [Settle]

    @precondition(any_open)
    @rule(pick=picks, reason=reasons, whole=st.booleans())
    def cancel(self, pick: int, reason: FinishReason, whole: bool) -> None:
        client = self.pick(pick)
        was_open = client.open
        sequence = None if whole else pick % client.request.sampling.n
        self.model.run(self.book.cancel(client.request.id, self.model.now, sequence, reason))
        assert client.open == ([] if whole else [k for k in was_open if k != sequence])

    @rule(seconds=st.sampled_from([0.0, 0.05, 1.0, 4.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.tick(self.model.now + seconds)
        for client in self.model.clients.values():
            deadline = client.request.deadline
            assert deadline is None or deadline > self.model.now, "kept past its deadline"
        for renewed_at in self.model.leases.values():
            assert self.model.now - renewed_at <= RENEWAL_S + 1e-6, "a lease runs out"

    # ── the fleet ────────────────────────────────────────────────────────────────────────────

    @rule(worker=names)
    def joins(self, worker: WorkerId) -> None:
        """Under another incarnation: whatever its former life had is gone."""
        info = worker_info(worker, life=str(self.serial()), role=self.role(worker))
        self.model.joined(info)
        self.model.run(self.book.observe(WorkerJoined(info), self.model.now))
        self.reports(worker)

    def role(self, worker: WorkerId) -> Role:
        return Role.MIXED

    @rule(worker=names)
    def reports(self, worker: WorkerId) -> None:
        self.model.run(self.book.observe(WorkerReported(worker, VIEW), self.model.now))

    # ── what always holds ────────────────────────────────────────────────────────────────────

    @invariant()
    def the_book_holds_what_is_open(self) -> None:
        model = self.model
        assert len(self.book) == len(model.clients)
        assert self.book.offers == len(model.leases), "an offer is stranded"
        waiting = [c for c in model.clients.values() if c.holder is None and c.grant is None]
        assert sum(self.book.held) == len(waiting), "a request is nowhere"
        assert not waiting or self.book.next_deadline() is not None, "a request waits for ever"
        for client in model.clients.values():
            assert client.fruitless < 3, "three deaths in a row are enough"
        for worker in model.drains:
            assert any(worker in model.workers_of(c) for c in model.clients.values())
