"""The laws of `RequestBook` against a worker that lies, repeats itself and never shuts up."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.core.requests import RequestBook
from antiphon.types import (
    Abort,
    Admitted,
    Command,
    Deliver,
    Dispatch,
    EndSequence,
    Event,
    FinishReason,
    Preempted,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    SamplingParams,
    SequenceEnded,
    Settle,
    Started,
    TokenGenerated,
    WorkerId,
)

WORKER = WorkerId("w0")
MAX_TOKENS = 6
reasons = st.sampled_from(FinishReason)
picks = st.integers(0, 10_000)


@dataclass
class Client:
    """What one client has seen, checked as it comes."""

    request: Request
    delivered: dict[int, list[TokenGenerated]] = field(default_factory=dict)
    ends: dict[int, FinishReason] = field(default_factory=dict)

    @property
    def open(self) -> list[int]:
        return [k for k in range(self.request.sampling.n) if k not in self.ends]

    def next_index(self, sequence: int) -> int:
        return len(self.delivered.get(sequence, []))


class HostileWorker(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = RequestBook(WORKER)
        self.clients: dict[RequestId, Client] = {}
        self.gone: list[Client] = []
        self.sent: list[Event] = []
        self.settled: set[RequestId] = set()
        self.started = 0
        self.facts = 0

    # --- the driver: executes commands, and checks the laws on each ---

    def run(self, commands: Sequence[Command]) -> Sequence[Command]:
        for command in commands:
            match command:
                case Dispatch(request):
                    assert request.id in self.clients
                    assert request.id not in self.settled
                case Abort(request, attempt, _):
                    assert request not in self.settled
                    assert attempt == self.clients[request].request.attempt
                case Deliver(token):
                    self.deliver(token)
                case EndSequence(request=request, sequence=sequence, reason=reason):
                    client = self.clients[request]  # gone once it is settled: KeyError
                    assert sequence in client.open
                    client.ends[sequence] = reason
                case Settle():
                    self.settle(command)
        return commands

    def deliver(self, token: TokenGenerated) -> None:
        client = self.clients[token.request]
        assert token.attempt == client.request.attempt
        assert token.sequence in client.open
        assert token.index == client.next_index(token.sequence) < MAX_TOKENS
        assert token in self.sent
        client.delivered.setdefault(token.sequence, []).append(token)

    def settle(self, settle: Settle) -> None:
        record = settle.record
        client = self.clients.pop(record.request)
        assert record.request not in self.settled
        self.settled.add(record.request)
        self.gone.append(client)
        if settle.rejected is None:
            assert client.open == []
            assert record.finish_reasons == tuple(
                client.ends[k] for k in range(client.request.sampling.n)
            )
        else:
            assert (client.delivered, record.finish_reasons) == ({}, ())
            assert client.open, "a refused request has no ends but what its client cancelled"
        assert record.output_tokens == sum(map(len, client.delivered.values()))
        stamps = (record.started_at, record.first_token_at, record.last_token_at)
        reached = [record.arrived_at, *(s for s in stamps if s is not None), record.ended_at]
        assert reached == sorted(reached)
        assert (record.first_token_at is None) == (record.output_tokens == 0)

    def hear(self, fact: Event | Admitted | Rejected) -> Sequence[Command]:
        if not isinstance(fact, Admitted | Rejected):
            self.sent.append(fact)
        before = sum(self.book.dropped.values())
        commands = self.run(self.book.heard(fact, self.now))
        lost = sum(self.book.dropped.values()) - before
        assert lost in (0, 1)
        assert not (lost and commands), "a dropped fact must have no effect"
        return commands

    def pick(self, pick: int) -> Client:
        return list(self.clients.values())[pick % len(self.clients)]

    def any_open(self) -> bool:
        return bool(self.clients)

    # --- what clients do ---

    @initialize()
    def first(self) -> None:
        self.start(n=2, attempt=1, patience=None)

    @rule(
        n=st.integers(1, 3),
        attempt=st.integers(1, 3),
        patience=st.none() | st.integers(-1, 20),
    )
    def start(self, n: int, attempt: int, patience: int | None) -> None:
        self.started += 1
        request = Request(
            id=RequestId(f"r{self.started}"),
            prompt=(1,),
            sampling=SamplingParams(n=n, max_tokens=MAX_TOKENS, seed=0),
            attempt=attempt,
            deadline=None if patience is None else self.now + patience,
        )
        self.clients[request.id] = Client(request)
        commands = self.run(self.book.start(request, self.now))
        late = patience is not None and patience <= 0
        assert [type(command) for command in commands] == [Settle if late else Dispatch]

    @precondition(any_open)
    @rule(pick=picks, reason=reasons, whole=st.booleans())
    def cancel(self, pick: int, reason: FinishReason, whole: bool) -> None:
        client = self.pick(pick)
        was_open = client.open
        sequence = None if whole else pick % client.request.sampling.n
        self.run(self.book.cancel(client.request.id, self.now, sequence, reason))
        expected = [] if whole else [k for k in was_open if k != sequence]
        assert client.open == expected

    @rule(pick=picks)
    def cancel_what_is_over(self, pick: int) -> None:
        if self.gone:
            over = self.gone[pick % len(self.gone)].request.id
            assert self.book.cancel(over, self.now) == ()

    @rule(seconds=st.integers(0, 10))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        self.run(self.book.due(self.now))
        assert all(
            client.request.deadline is None or client.request.deadline > self.now
            for client in self.clients.values()
        )

    # --- what an honest worker does ---

    @precondition(any_open)
    @rule(pick=picks, count=st.integers(1, 3))
    def honest_tokens(self, pick: int, count: int) -> None:
        client = self.pick(pick)
        if not client.open:
            return
        sequence = client.open[pick % len(client.open)]
        for _ in range(count):
            if (index := client.next_index(sequence)) == MAX_TOKENS:
                break
            token = self.token(client, sequence, index)
            assert self.hear(token) == (Deliver(token),), "a good token must never be dropped"

    def token(self, client: Client, sequence: int, index: int) -> TokenGenerated:
        self.facts += 1
        return TokenGenerated(
            request=client.request.id,
            attempt=client.request.attempt,
            sequence=sequence,
            index=index,
            token=self.facts,  # no two alike: a wrong one can't pass for the right one
        )

    @precondition(any_open)
    @rule(pick=picks, reason=reasons)
    def honest_end(self, pick: int, reason: FinishReason) -> None:
        client = self.pick(pick)
        sequence = client.open[pick % len(client.open)]
        ended = SequenceEnded(
            request=client.request.id,
            attempt=client.request.attempt,
            sequence=sequence,
            reason=reason,
        )
        assert isinstance(self.hear(ended)[0], EndSequence)

    @precondition(any_open)
    @rule(pick=picks, admitted=st.booleans())
    def answer(self, pick: int, admitted: bool) -> None:
        id = self.pick(pick).request.id
        if admitted:
            self.hear(Admitted(request=id))
        else:
            self.hear(Rejected(request=id, reason=RejectReason.QUEUE_FULL, message="full"))

    @precondition(any_open)
    @rule(pick=picks)
    def begin(self, pick: int) -> None:
        request = self.pick(pick).request
        self.hear(
            Started(request=request.id, attempt=request.attempt, cached_tokens=0, queued_s=0.0)
        )

    # --- what no worker should do ---

    @precondition(lambda self: bool(self.sent))
    @rule(pick=picks)
    def repeats_itself(self, pick: int) -> None:
        self.hear(self.sent[pick % len(self.sent)])

    @precondition(lambda self: bool(self.sent))
    @rule(pick=picks, attempt=st.integers(-1, 4))
    def mixes_up_attempts(self, pick: int, attempt: int) -> None:
        fact = replace(self.sent[pick % len(self.sent)], attempt=attempt)
        client = self.clients.get(fact.request)
        commands = self.hear(fact)
        assert client is None or client.request.attempt == attempt or not commands

    @rule(pick=picks, sequence=st.integers(-2, 4), index=st.integers(-2, MAX_TOKENS + 2))
    def invents(self, pick: int, sequence: int, index: int) -> None:
        """Any sequence, any index, of a request that is open or over."""
        clients = [*self.clients.values(), *self.gone]
        client = clients[pick % len(clients)]
        token = self.token(client, sequence, index)
        commands = self.hear(token)
        assert commands == () or isinstance(commands[0], Deliver | Abort)
        self.hear(Preempted(request=token.request, attempt=token.attempt, sequence=token.sequence))

    @rule(name=st.text(max_size=3))
    def unknown_request(self, name: str) -> None:
        assert self.hear(Admitted(request=RequestId(name))) == ()

    @rule()
    def worker_is_lost(self) -> None:
        self.run(self.book.lost(WORKER, self.now))
        assert self.clients == {}

    # --- the book's own state ---

    @invariant()
    def the_book_holds_what_is_open(self) -> None:
        assert len(self.book) == len(self.clients)
        assert self.started == len(self.clients) + len(self.gone)
        deadlines = [c.request.deadline for c in self.clients.values()]
        earliest = min((d for d in deadlines if d is not None), default=None)
        assert self.book.next_deadline() == earliest

    def teardown(self) -> None:
        self.run(self.book.lost(WORKER, self.now))
        assert len(self.book) == 0
        assert self.book.next_deadline() is None
        assert len(self.settled) == self.started


HostileWorker.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=50)
TestLaws = HostileWorker.TestCase
