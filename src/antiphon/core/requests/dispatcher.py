"""Brings attempts to workers, and keeps their offers alive until somebody has taken them.

It asks the router, and turns its answers into commands. When to ask, and when a request is over,
is the book's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from antiphon.errors import BugError
from antiphon.types import (
    Abort,
    Adopt,
    Command,
    Dispatch,
    Fetched,
    FleetEvent,
    Grant,
    Health,
    HealthChanged,
    Hold,
    Offer,
    Pulled,
    Rejected,
    Release,
    RequestId,
    Route,
    Seconds,
    SequenceEnded,
    Stage,
    WorkerId,
)

from .attempt import WAITING, Granting, Prefilling, Serving
from .handovers import Handovers
from .open_request import OpenRequest
from .reachable_workers import ReachableWorkers
from .routing import Routing


@dataclass(frozen=True, slots=True)
class AllRefused:
    """The router knows of nobody but workers that had no room for the request a moment ago."""

    refusal: Rejected


class Dispatcher:
    """Owns what is known of the fleet, and all live offers."""

    def __init__(self, router: Routing, handovers: Handovers) -> None:
        self.workers = ReachableWorkers()
        self.handovers = handovers
        self._router = router

    def observe(self, event: FleetEvent, now: Seconds) -> bool:
        """Mutates: the fleet has changed. False: it has not, really."""
        changed = self.workers.observe(event)
        if changed:
            self._router.observe(event, now)
        return changed

    def forget(self, id: RequestId, now: Seconds, *, again: bool = False) -> None:
        """Mutates: whatever the router chose for it is void; `again`: another attempt follows."""
        self._router.settled(id, now, again=again)

    def refused(self, worker: WorkerId, now: Seconds) -> None:
        """Mutates: the router does not know that this worker is full."""
        self._router.refused(worker, now)

    # ── to a worker ──────────────────────────────────────────────────────────────────────────

    def in_vain(self, entry: OpenRequest, ahead: tuple[int, int], now: Seconds) -> Rejected | None:
        """Why a request behind so many others and so many tokens of theirs had better not run."""
        requests, tokens = ahead
        return self._router.in_vain(
            entry.request, now, ahead_requests=requests, ahead_tokens=tokens
        )

    def drain(self, worker: WorkerId, until: Seconds, now: Seconds) -> None:
        """Mutates: this member gets nothing new."""
        self.workers.drain(worker, until)
        self._router.observe(HealthChanged(worker, Health.DRAINING), now)

    def place(
        self, entry: OpenRequest, now: Seconds
    ) -> Sequence[Command] | Hold | Rejected | AllRefused:
        """Find a worker for a request that waits for one, and give it to that worker.

        `Rejected`: no worker can serve it; or, with an offer, nobody can use that offer.
        """
        if entry.offer is not None:
            return self._grant(entry, entry.offer, now)
        if not entry.untouched:  # a sequence may have been cancelled while it waited
            entry.attempt.request = entry.resumed()
        route = self._router.choose(entry.request, now, whole=entry.whole)
        if not isinstance(route, Route):
            return route
        first = route.decode if route.prefill is None else route.prefill
        if entry.refusal is not None and first in entry.refused_by:
            self.forget(entry.id, now, again=True)
            return AllRefused(entry.refusal)
        self._check(first)
        entry.attempt.routed(_spelled(route.prefill, route.decode, route.reason), now)
        if route.prefill is None:
            entry.attempt.give(Serving(first, adopted=False))
            return (Dispatch(entry.request, first, fetch=route.fetch),)
        entry.attempt.give(Prefilling(first))
        return (Dispatch(entry.request, first, Stage.PREFILL, route.fetch),)

    def _grant(
        self, entry: OpenRequest, offer: Offer, now: Seconds
    ) -> Sequence[Command] | Hold | Rejected | AllRefused:
        """Find somebody who goes on with the offer, and have the owner promise it the pages."""
        taker = self._router.choose_decode(offer, entry.resumed(), now)
        if isinstance(taker, Hold | Rejected):
            return taker
        if entry.refusal is not None and taker in entry.refused_by:
            self.forget(entry.id, now, again=True)
            return AllRefused(entry.refusal)
        self._check(taker)
        own = entry.request.attempt == offer.attempt
        reason = "chosen at its offer" if own else "its KV is still offered"
        entry.attempt.routed(_spelled(offer.owner, taker, reason), now)
        entry.attempt.give(Granting(taker))
        grant = Grant(
            request=entry.id,
            attempt=entry.request.attempt,
            owner=offer.owner,
            lease=offer.lease,
            taker=taker,
        )
        return (grant,)

    def adopt(self, entry: OpenRequest, offer: Offer, taker: WorkerId, now: Seconds) -> Adopt:
        """The grant was given: hand the request over. Mutates."""
        entry.attempt.reached("adopted", now)
        entry.attempt.request = entry.resumed()
        entry.attempt.give(Serving(taker, adopted=True))
        return Adopt(request=entry.request, worker=taker, offer=offer)

    def stop(self, entry: OpenRequest, sequence: int | None = None) -> list[Command]:
        """Tell the worker that has the request, if one has, to end it or one sequence of it."""
        worker = entry.attempt.worker
        if worker is None or worker not in self.workers:
            return []
        return [Abort(entry.id, entry.request.attempt, worker, sequence)]

    def cuts_short(self, entry: OpenRequest, fact: SequenceEnded) -> bool:
        """The worker says that a sequence is complete, but its last tokens are not here."""
        worker = entry.attempt.worker
        assert worker is not None
        return entry.is_cut_short(fact.sequence, fact.reason, self.workers.longest(worker))

    def token(self, entry: OpenRequest, now: Seconds) -> None:
        """Mutates: the attempt's first token is there."""
        entry.attempt.first_token = True
        self._router.prefilled(entry.id, now)
        self._ran_on(entry, entry.attempt.worker)

    # ── offers ───────────────────────────────────────────────────────────────────────────────

    def misfit(self, entry: OpenRequest, offer: Offer) -> str:
        """Why nobody can go on with this offer; empty: it is what was asked for."""
        if not self.workers.lives(offer.owner, offer.incarnation):
            return "the worker's offer is from another life of it"
        if self.handovers.has(offer.owner, offer.lease):
            return "the worker's offer has the lease of another one"
        if not 0 < offer.ttl_s < inf:
            return f"the worker's offer lives for {offer.ttl_s} s"
        offered = {part.sequence: part.tokens for part in offer.sequences}
        resumed = entry.request.resumed
        for sequence in entry.open_sequences():
            before = len(resumed[sequence]) if sequence < len(resumed) else 0
            if offered.get(sequence) != len(entry.request.prompt) + before:
                return f"the worker's offer lacks the KV of sequence {sequence}"
            if entry.next_index(sequence) != before + 1:
                return f"the worker's offer came without a token of sequence {sequence}"
        return ""

    def take_up(self, entry: OpenRequest, offer: Offer, now: Seconds) -> None:
        """Mutates: the prompt is computed; the request waits for somebody who goes on."""
        entry.offer = offer
        entry.attempt.reached("offered", now)
        self.handovers.add(offer, now)
        entry.attempt.give(WAITING)

    def arrived(self, entry: OpenRequest, fact: Pulled | Fetched, now: Seconds) -> None:
        """Mutates: KV has come to the request's worker, or can't be had."""
        match fact:
            case Pulled():
                entry.recomputed_tokens += fact.missing_tokens
                self._pulled(entry, fact, now)
            case Fetched():
                entry.not_fetched(fact.missing_tokens)
                entry.attempt.reached("fetched", now)
                entry.attempt.fetched = True
                self._router.fetched(entry.id, fact.missing_tokens, fact.seconds, now)

    def _pulled(self, entry: OpenRequest, fact: Pulled, now: Seconds) -> None:
        """The KV was taken, so the offer is over."""
        entry.attempt.reached("pulled", now)
        entry.pulled_tokens += fact.pulled_tokens
        entry.attempt.pulled = True
        self._ran_on(entry, entry.attempt.worker)
        if entry.offer is not None:
            self.handovers.remove(entry.offer)
            entry.offer = None

    def give_up_offer(self, entry: OpenRequest) -> list[Command]:
        """Mutates: nobody will take the request's offer, if it has one."""
        offer, entry.offer = entry.offer, None
        if offer is None:
            return []
        self.handovers.remove(offer)
        return self.release(offer)

    def release(self, offer: Offer) -> list[Command]:
        """Tell the owner of an offer that is not live here; its own end is a release as well."""
        if not self.workers.lives(offer.owner, offer.incarnation):
            return []
        if self.handovers.has(offer.owner, offer.lease):
            return []
        return [Release(owner=offer.owner, lease=offer.lease)]

    def _check(self, worker: WorkerId) -> None:
        if not self.workers.takes(worker):
            raise BugError(f"the router chose {worker}, which takes no requests")

    def _ran_on(self, entry: OpenRequest, worker: WorkerId | None) -> None:
        """What this worker computes goes on from what others have."""
        if worker is None:
            return
        numerics = self.workers.numerics(worker)
        entry.numerics = entry.numerics or numerics
        entry.exact = entry.exact and entry.numerics == numerics


def _spelled(prefill: WorkerId | None, decode: WorkerId, reason: str) -> str:
    return f"{decode}: {reason}" if prefill is None else f"{prefill} > {decode}: {reason}"
