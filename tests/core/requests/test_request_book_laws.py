"""The laws of `RequestBook` on a fleet that dies, lies, repeats itself and never shuts up.

The machine plays clients, workers and time; `fleet_model` checks each command. Faulty parts, put
in at construction, must each be found.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fleet_kit import offer_of, worker_info
from fleet_model import MAX_TOKENS, RENEWAL_S, Client, FleetModel, WilfulRouter
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from antiphon.core.requests import DropReason, RequestBook
from antiphon.core.requests.dispatcher import Dispatcher
from antiphon.core.requests.facts import Fact, why_unusable
from antiphon.core.requests.handovers import Handovers
from antiphon.core.requests.open_request import OpenRequest
from antiphon.core.requests.parts import STANDARD_PARTS, Parts
from antiphon.core.router import Router
from antiphon.errors import BugError
from antiphon.perf import DEFAULT_LINK_TIME, DEFAULT_STEP_TIME, FittedPhaseTime
from antiphon.types import (
    Admitted,
    AttemptFailed,
    Command,
    Deliver,
    EndSequence,
    Event,
    FinishReason,
    FleetEvent,
    GrantAnswered,
    Health,
    HealthChanged,
    Hold,
    LeaseRefusal,
    Offer,
    Preempted,
    Pulled,
    Rejected,
    RejectReason,
    Release,
    Renew,
    Request,
    RequestId,
    Role,
    Route,
    RouterConfig,
    SamplingParams,
    Seconds,
    SequenceEnded,
    Settle,
    Started,
    TokenGenerated,
    WorkerId,
    WorkerJoined,
    WorkerReported,
    WorkerView,
)

VIEW = replace(WorkerView(**dict.fromkeys(WorkerView.__dataclass_fields__, 0)), total_pages=64)
EOS = 0
NAMES = ("a", "b", "c", "d")
reasons = st.sampled_from(FinishReason)
refusals = st.sampled_from([*RejectReason, RejectReason.QUEUE_FULL, RejectReason.DRAINING])
picks = st.integers(0, 10_000)
names = st.sampled_from(NAMES).map(WorkerId)


class HostileFleet(RuleBasedStateMachine):
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

    def any_open(self) -> bool:
        return bool(self.model.clients)

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

    # ── what honest workers do ───────────────────────────────────────────────────────────────

    @precondition(any_open)
    @rule(pick=picks, count=st.integers(1, 3))
    def generates(self, pick: int, count: int) -> None:
        client = self.pick(pick)
        if client.holder is None or not client.open:
            return
        sequence = client.open[pick % len(client.open)]
        resumed = client.now.resumed
        before = len(resumed[sequence]) if sequence < len(resumed) else 0
        most = before + 1 if client.holder.prefill else MAX_TOKENS
        for _ in range(count):
            index = len(client.delivered.get(sequence, []))
            if index >= min(most, MAX_TOKENS):
                break
            token = self.token(client, sequence, index)
            said = [one for one in self.hear(token) if isinstance(one, Deliver)]
            assert said == [Deliver(token)], "a good token must never be dropped"

    def token(self, client: Client, sequence: int, index: int) -> TokenGenerated:
        return TokenGenerated(
            request=client.request.id,
            attempt=client.now.attempt,
            sequence=sequence,
            index=index,
            token=self.serial(),  # no two alike: a wrong one can't pass for the right one
        )

    @precondition(any_open)
    @rule(pick=picks, reason=reasons)
    def ends(self, pick: int, reason: FinishReason) -> None:
        client = self.pick(pick)
        if client.holder is None:
            return
        sequence = client.open[pick % len(client.open)]
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            reason = self.completes(client, sequence)
        client.holder.owes.discard(sequence)
        said = self.hear(self.end(client, sequence, reason))
        assert said
        assert isinstance(said[0], EndSequence)

    def end(self, client: Client, sequence: int, reason: FinishReason) -> SequenceEnded:
        return SequenceEnded(
            request=client.request.id,
            attempt=client.now.attempt,
            sequence=sequence,
            reason=reason,
        )

    def completes(self, client: Client, sequence: int) -> FinishReason:
        """Says the last token of a sequence, if it may, and returns why it ends."""
        assert client.holder is not None
        resumed, index = client.now.resumed, len(client.tokens(sequence))
        before = len(resumed[sequence]) if sequence < len(resumed) else 0
        if index == MAX_TOKENS:
            return FinishReason.LENGTH
        if client.holder.prefill and index > before:
            return FinishReason.ERROR
        self.hear(replace(self.token(client, sequence, index), token=EOS))
        return FinishReason.STOP

    @precondition(any_open)
    @rule(pick=picks, reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]))
    def loses_the_last_token(self, pick: int, reason: FinishReason) -> None:
        """A sequence that is cut short must not end as if it were complete."""
        client = self.pick(pick)
        if client.holder is None:
            return
        sequence = client.open[pick % len(client.open)]
        if len(client.tokens(sequence)) == MAX_TOKENS and reason is FinishReason.LENGTH:
            return
        client.raises_paid += 1
        client.failed()
        self.hear(self.end(client, sequence, reason))
        cut_short = client.ends.get(sequence) in (FinishReason.STOP, FinishReason.LENGTH)
        assert not cut_short or len(client.tokens(sequence)) == MAX_TOKENS

    @precondition(any_open)
    @rule(pick=picks)
    def offers(self, pick: int) -> None:
        client = self.pick(pick)
        holder = client.holder
        if holder is None or not holder.prefill:
            return
        for sequence in client.open:
            self.generates_first(client, sequence)
        offer = offer_of(
            holder.request, self.model.alive[holder.worker], lease=f"lease-{self.serial()}"
        )
        self.model.leases[offer.owner, offer.lease] = self.model.now
        client.holder, client.offer = None, offer
        self.hear(offer)

    @rule()
    def all_offer(self) -> None:
        for place in range(len(self.model.clients)):
            if place < len(self.model.clients):
                self.offers(place)

    @rule()
    def offers_wait(self) -> None:
        self.all_offer()
        self.time_passes(4.0)

    def generates_first(self, client: Client, sequence: int) -> None:
        resumed = client.now.resumed
        index = len(resumed[sequence]) if sequence < len(resumed) else 0
        if len(client.delivered.get(sequence, [])) == index < MAX_TOKENS:
            self.hear(self.token(client, sequence, index))

    @precondition(any_open)
    @rule(pick=picks, refused=st.none() | st.sampled_from(LeaseRefusal))
    def answers_a_grant(self, pick: int, refused: LeaseRefusal | None) -> None:
        client = self.pick(pick)
        grant = client.grant
        if grant is None:
            return
        if refused is None:
            client.granted = True
        else:
            client.grant = None
            client.raises_paid += 1
        self.hear(
            GrantAnswered(
                request=grant.request, attempt=grant.attempt, lease=grant.lease, refused=refused
            )
        )

    @precondition(any_open)
    @rule(pick=picks, missing=st.integers(0, 3))
    def pulls(self, pick: int, missing: int) -> None:
        client = self.pick(pick)
        if client.holder is None or (offer := client.holder.to_pull) is None:
            return
        client.holder.to_pull = None
        self.model.leases.pop((offer.owner, offer.lease), None)
        client.offer = None
        self.hear(
            Pulled(
                request=client.request.id,
                attempt=client.now.attempt,
                pulled_tokens=3,
                cached_tokens=0,
                missing_tokens=missing,
            )
        )

    @precondition(any_open)
    @rule(pick=picks)
    def gives_up(self, pick: int) -> None:
        """The fault of whoever has it: another goes on, with its offer if it has one."""
        client = self.pick(pick)
        if client.holder is None:
            return
        client.holder = None
        client.raises_paid += 1
        client.failed()
        self.hear(
            AttemptFailed(request=client.request.id, attempt=client.now.attempt, message="broken")
        )

    @precondition(any_open)
    @rule(pick=picks)
    def admits(self, pick: int) -> None:
        client = self.pick(pick)
        self.hear(Admitted(request=client.request.id, attempt=client.now.attempt))

    @precondition(any_open)
    @rule(pick=picks, reason=refusals)
    def refuses(self, pick: int, reason: RejectReason) -> None:
        """At once; or later, against its word."""
        client = self.pick(pick)
        fact = Rejected(
            request=client.request.id, attempt=client.now.attempt, reason=reason, message="no"
        )
        known = self.book.dropped[DropReason.CONTRADICTION]
        held, paid = client.holder, client.raises_paid
        if held is not None:
            client.raises_paid += 1
            client.holder = None
        self.hear(fact)
        if self.book.dropped[DropReason.CONTRADICTION] > known:
            client.holder, client.raises_paid = held, paid

    @precondition(any_open)
    @rule(pick=picks)
    def begins(self, pick: int) -> None:
        client = self.pick(pick)
        id, attempt = client.request.id, client.now.attempt
        if client.holder is not None:
            client.holder.begun = True
        self.hear(Started(request=id, attempt=attempt, cached_tokens=0, queued_s=0.0))
        self.hear(Preempted(request=id, attempt=attempt, sequence=pick % 3))

    # ── the fleet ────────────────────────────────────────────────────────────────────────────

    @rule(worker=names)
    def dies(self, worker: WorkerId) -> None:
        self.model.lost(worker)
        self.model.run(self.book.observe(HealthChanged(worker, Health.LOST), self.model.now))

    @precondition(any_open)
    @rule(pick=picks, waits=st.booleans())
    def kills_whoever_has_it(self, pick: int, waits: bool) -> None:
        """A request that is the death of its workers; or one that only `waits` at them."""
        client = self.pick(pick)
        for _ in range(4):
            if client.holder is not None and client.request.id in self.model.clients:
                worker = client.holder.worker
                if not waits:
                    self.begins(list(self.model.clients).index(client.request.id))
                self.dies(worker)
                self.joins(worker)

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
    def joins_twice(self, worker: WorkerId) -> None:
        if (info := self.model.alive.get(worker)) is not None:
            assert self.book.observe(WorkerJoined(info), self.model.now) == ()

    @rule(worker=names, health=st.sampled_from([Health.JOINED, Health.SUSPECT, Health.DRAINING]))
    def looks_otherwise(self, worker: WorkerId, health: Health) -> None:
        self.model.run(self.book.observe(HealthChanged(worker, health), self.model.now))

    @rule(worker=names)
    def reports(self, worker: WorkerId) -> None:
        self.model.run(self.book.observe(WorkerReported(worker, VIEW), self.model.now))

    @rule(worker=names, patience=st.sampled_from([0.0, 2.0, 30.0]))
    def drain(self, worker: WorkerId, patience: float) -> None:
        self.model.drains[worker] = self.model.now + patience
        self.model.overdue()
        self.model.run(self.book.drain(worker, self.model.now + patience, self.model.now))

    # ── what no worker should do ─────────────────────────────────────────────────────────────

    @precondition(lambda self: bool(self.said))
    @rule(pick=picks)
    def repeats_itself(self, pick: int) -> None:
        self.say_again(self.said[pick % len(self.said)])

    @precondition(lambda self: bool(self.said))
    @rule(pick=picks, attempt=st.integers(-1, 6))
    def mixes_up_attempts(self, pick: int, attempt: int) -> None:
        fact = self.said[pick % len(self.said)]
        client = self.model.clients.get(fact.request)
        if client is None or client.now.attempt != attempt:
            self.say_again(replace(fact, attempt=attempt))

    @precondition(any_open)
    @rule(pick=picks)
    def comes_back_from_the_dead(self, pick: int) -> None:
        """A worker that was stopped, and given up, goes on where it was."""
        client = self.pick(pick)
        if client.open and client.now.attempt > 1:
            sequence = client.open[pick % len(client.open)]
            token = self.token(client, sequence, len(client.delivered.get(sequence, [])))
            assert self.hear(replace(token, attempt=client.now.attempt - 1)) == ()

    def say_again(self, fact: Event) -> None:
        """Nobody's word now, so the model is not told; but an offer must be answered for."""
        client = self.model.clients.get(fact.request)
        current = client is not None and client.now.attempt == fact.attempt
        if current and isinstance(fact, Pulled | SequenceEnded | Offer | AttemptFailed):
            return  # nobody could tell it from an honest one
        if isinstance(fact, Offer):
            alive = self.model.alive.get(fact.owner)
            if alive is not None and alive.incarnation == fact.incarnation:
                self.model.leases.setdefault((fact.owner, fact.lease), self.model.now)
        self.hear(fact)

    @precondition(any_open)
    @rule(pick=picks, sequence=st.integers(-2, 4), index=st.integers(-2, MAX_TOKENS + 2))
    def invents(self, pick: int, sequence: int, index: int) -> None:
        client = self.pick(pick)
        holder = client.holder
        if holder is not None and holder.prefill and client.open:
            return  # a second token would make its honest offer a misfit
        commands = self.hear(self.token(client, sequence, index))
        assert commands == () or isinstance(commands[0], Deliver | EndSequence) or holder

    @precondition(any_open)
    @rule(pick=picks, lease=st.sampled_from([None, "lease-odd"]), fits=st.booleans())
    def offers_nonsense(self, pick: int, lease: str | None, fits: bool) -> None:
        """An offer of somebody who was not asked, or of something else than was asked for."""
        client = self.pick(pick)
        for worker, info in list(self.model.alive.items()):
            asked = client.holder and client.holder.prefill and client.holder.worker == worker
            if asked and fits:
                continue
            offer = offer_of(client.now, info, lease=lease or f"lease-{self.serial()}")
            if asked:
                offer = replace(offer, sequences=())
            self.model.leases.setdefault((offer.owner, offer.lease), self.model.now)
            self.hear(offer)
            return

    @rule(name=st.text(max_size=3))
    def unknown_request(self, name: str) -> None:
        assert self.hear(Admitted(request=RequestId(name))) == ()

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

    def teardown(self) -> None:
        """With a kind router and honest workers all ends, and nothing stays."""
        self.model.router.kind = True
        self.joins(WorkerId("last"))
        for _ in range(60):
            for id in list(self.model.clients):
                self.finish(id)
            self.time_passes(1.0)
            self.the_book_holds_what_is_open()
            if not self.model.clients:
                break
        assert not self.model.clients, "not everything ends"
        self.time_passes(30.0)
        assert self.book.next_deadline() is None
        assert (self.book.held, self.book.offers) == ((0, 0), 0)
        assert not self.model.router.loads, "the router remembers what is over"
        assert not self.model.leases

    def finish(self, id: RequestId) -> None:
        """The next honest step of one request."""
        place = list(self.model.clients).index(id)
        client = self.model.clients[id]
        if client.grant is not None:
            self.answers_a_grant(place, None)
        elif client.holder is not None and client.holder.prefill:
            self.offers(place)
        elif client.holder is not None:
            self.pulls(place, 0)
            for _ in client.open:
                self.ends(place, FinishReason.STOP)


HostileFleet.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=50)
TestLaws = HostileFleet.TestCase


class TrueRouter(WilfulRouter):
    """The router that is served with, watched."""

    def __init__(self) -> None:
        super().__init__()
        self._router = Router(
            RouterConfig(policy="least-loaded"),  # which always splits if it can
            times=FittedPhaseTime(step_time=DEFAULT_STEP_TIME),
            transfer=DEFAULT_LINK_TIME,
            kv_bytes_per_token=1,
        )

    def observe(self, event: FleetEvent, now: float) -> None:
        super().observe(event, now)
        self._router.observe(event, now)

    def in_vain(
        self, request: Request, now: float, *, ahead_requests: int = 0, ahead_tokens: int = 0
    ) -> Rejected | None:
        return self._router.in_vain(
            request, now, ahead_requests=ahead_requests, ahead_tokens=ahead_tokens
        )

    def choose(
        self, request: Request, now: float, *, whole: bool = False
    ) -> Route | Hold | Rejected:
        return self._router.choose(request, now, whole=whole)

    def choose_decode(
        self, offer: Offer, request: Request, now: float
    ) -> WorkerId | Hold | Rejected:
        answer = self._router.choose_decode(offer, request, now)
        if isinstance(answer, Rejected):
            self.refused_offers.append(request.id)
        return answer

    def prefilled(self, request: RequestId, now: float) -> None:
        self._router.prefilled(request, now)

    def fetched(self, request: RequestId, missing_tokens: int, seconds: float, now: float) -> None:
        self._router.fetched(request, missing_tokens, seconds, now)

    def refused(self, worker: WorkerId, now: float) -> None:
        self._router.refused(worker, now)

    def settled(self, request: RequestId, now: float, *, again: bool = False) -> None:
        self._router.settled(request, now, again=again)

    @property
    def open_requests(self) -> int:
        return self._router.open_requests


class RoutedFleet(HostileFleet):
    """The same laws with prefill, decode and mixed workers behind the true router."""

    def router(self) -> WilfulRouter:
        self.true = TrueRouter()
        return self.true

    def role(self, worker: WorkerId) -> Role:
        return {"a": Role.PREFILL, "b": Role.DECODE, "c": Role.PREFILL}.get(worker, Role.MIXED)

    def teardown(self) -> None:
        super().teardown()
        assert self.true.open_requests == 0, "the router remembers what is over"


RoutedFleet.TestCase.settings = settings(deadline=None, max_examples=75, stateful_step_count=50)
TestLawsWithTheRouter = RoutedFleet.TestCase


# ── negative controls: each of these parts is put in at construction, and must be found ──────────


def ignores_attempts(entry: OpenRequest, fact: Fact) -> DropReason | None:
    """Takes every fact for one of the current attempt."""
    return why_unusable(entry, replace(fact, attempt=entry.request.attempt))


class KeepsOffers(Dispatcher):
    """Never tells an owner that nobody will come."""

    def release(self, offer: Offer) -> list[Command]:
        return []


class ForgetsReleaseAtTheEnd(Dispatcher):
    """Drops a request's offer from its books, and no more."""

    def give_up_offer(self, entry: OpenRequest) -> list[Command]:
        super().give_up_offer(entry)
        return []


class StartsOver(OpenRequest):
    """Begins each attempt at the prompt, as if nothing had been delivered."""

    def resumed(self) -> Request:
        return replace(super().resumed(), resumed=())


class ForgetsEnds(OpenRequest):
    """Runs sequences again that have ended."""

    def resumed(self) -> Request:
        return replace(super().resumed(), done=())


class NeverGivesUp(OpenRequest):
    """Does not count deaths."""

    def try_again(self, now: Seconds) -> None:
        super().try_again(now)
        self.fruitless = 0


class BlamesWhoWaits(OpenRequest):
    """Counts attempts that had not begun."""

    def try_again(self, now: Seconds) -> None:
        self.fruitless += not self.attempt.begun
        super().try_again(now)


class Forgetful(Handovers):
    """Renews one lease of each owner."""

    def due(self, now: float) -> list[Renew]:
        return [replace(renewal, leases=renewal.leases[:1]) for renewal in super().due(now)]


class Clings(Handovers):
    """Goes on renewing what is over."""

    def remove(self, offer: Offer) -> None:
        """Nothing."""


class KeepsLoad(Dispatcher):
    """Never tells the router that a request is over."""

    def forget(self, id: RequestId, now: float, *, again: bool = False) -> None:
        """Nothing."""


class LetsThemRun(Dispatcher):
    """Moves a request without stopping it where it is."""

    def stop(self, entry: OpenRequest, sequence: int | None = None) -> list[Command]:
        return [] if sequence is None else super().stop(entry, sequence)


FAULTS = {
    "attempts ignored": Parts(why_unusable=ignores_attempts),
    "late offers not released": Parts(dispatcher=KeepsOffers),
    "a release forgotten": Parts(dispatcher=ForgetsReleaseAtTheEnd),
    "the resume point lost": Parts(open_request=StartsOver),
    "ended sequences run again": Parts(open_request=ForgetsEnds),
    "deaths not counted": Parts(open_request=NeverGivesUp),
    "deaths counted against who waits": Parts(open_request=BlamesWhoWaits),
    "a renewal forgotten": Parts(handovers=Forgetful),
    "renewals of what is over": Parts(handovers=Clings),
    "the router not told": Parts(dispatcher=KeepsLoad),
    "no abort": Parts(dispatcher=LetsThemRun),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_faulty_part_is_found(fault: Parts) -> None:
    kind = type("Fleet", (HostileFleet,), {"parts": fault})
    bounds = settings(
        deadline=None,
        max_examples=400,
        stateful_step_count=50,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        print_blob=False,
    )
    with pytest.raises((AssertionError, KeyError, BugError)):
        run_state_machine_as_test(kind, settings=bounds)
