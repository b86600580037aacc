"""The fleet's machine with workers that die, lie, repeat themselves and never shut up."""

from dataclasses import replace

from fleet_kit import offer_of
from fleet_machine import any_open, names, picks
from fleet_model import MAX_TOKENS
from honest_fleet import HonestFleet
from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
)

from antiphon.types import (
    Admitted,
    AttemptFailed,
    Deliver,
    EndSequence,
    Event,
    Health,
    HealthChanged,
    Offer,
    Pulled,
    RequestId,
    SequenceEnded,
    WorkerId,
    WorkerJoined,
)


class HostileFleet(HonestFleet):
    """Whatever they say, the laws of `FleetMachine` hold."""

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
    def joins_twice(self, worker: WorkerId) -> None:
        if (info := self.model.alive.get(worker)) is not None:
            assert self.book.observe(WorkerJoined(info), self.model.now) == ()

    @rule(worker=names, health=st.sampled_from([Health.JOINED, Health.SUSPECT, Health.DRAINING]))
    def looks_otherwise(self, worker: WorkerId, health: Health) -> None:
        self.model.run(self.book.observe(HealthChanged(worker, health), self.model.now))

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
