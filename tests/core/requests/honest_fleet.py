"""The fleet's machine with workers that do their best: they compute, hand over, refuse and fail."""

from dataclasses import replace

from fleet_kit import offer_of
from fleet_machine import EOS, FleetMachine, any_open, picks, reasons, refusals
from fleet_model import MAX_TOKENS, Client
from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
)

from antiphon.core.requests import DropReason
from antiphon.types import (
    Admitted,
    AttemptFailed,
    Deliver,
    EndSequence,
    FinishReason,
    GrantAnswered,
    LeaseRefusal,
    Preempted,
    Pulled,
    Rejected,
    RejectReason,
    RequestId,
    SequenceEnded,
    Started,
    TokenGenerated,
    WorkerId,
)


class HonestFleet(FleetMachine):
    """With a kind router all that is open ends, and nothing stays."""

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

    # ── the end ──────────────────────────────────────────────────────────────────────────────

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
