"""Whom a request may go to: all who could take it, or of many a few that are worth a prediction."""

from collections.abc import Sequence

from antiphon.types import (
    Health,
    Hold,
    Offer,
    Rejected,
    RejectReason,
    Request,
    Role,
    Seconds,
    WorkerId,
)

from .beliefs import Beliefs
from .demand import Demand
from .eligibility import could_adopt, could_run, is_open
from .prefix_beliefs import HeldPrefixes
from .router_limits import RouterLimits
from .short_list import NAMED, ShortList
from .worker_belief import WorkerBelief, exchange_of


class Candidates:
    """Asks beliefs; what it returns is in the order of ids, with a pace of this moment.

    `narrow`: where there are many workers a few are enough. `few` and `few_takers` return none
    where all are to be looked at: where there are not many, for later attempts, which prefer
    workers that compute as the first did, and for policies that are there to compare.
    """

    def __init__(
        self,
        beliefs: Beliefs,
        short: ShortList,
        limits: RouterLimits,
        *,
        hold_s: Seconds,
        narrow: bool,
    ) -> None:
        self._beliefs, self._short, self._limits = beliefs, short, limits
        self._hold_s, self._narrow = hold_s, narrow

    def hold(self, request: Request, reason: str, now: Seconds) -> Hold:
        """Nobody can take it now. Does not mutate."""
        return Hold(request=request.id, reason=reason, ask_again_at=now + self._hold_s)

    # ── a few of many ────────────────────────────────────────────────────────────────────────

    def few(
        self, request: Request, demand: Demand, held: HeldPrefixes | None, now: Seconds
    ) -> list[WorkerBelief]:
        """To route it. Mutates: counts draws."""
        if not self._are_many(request):
            return []
        few = self._found(self._short.draw())
        if held is not None:
            named = held.longest((worker.info for worker in few), NAMED, self._short.turn)
            few = self._found([*(worker.info.id for worker in few), *named])
        return _now([one for one in few if could_run(one, demand) and is_open(one, now)], now)

    def few_takers(
        self, offer: Offer, request: Request, demand: Demand, now: Seconds
    ) -> list[WorkerBelief]:
        """To go on with an offer. Mutates: counts draws."""
        if not self._are_many(request):
            return []
        few = self._found(self._short.draw(exchange_of(offer.numerics, offer.kv)))
        return _now([one for one in few if could_adopt(one, demand) and is_open(one, now)], now)

    def _are_many(self, request: Request) -> bool:
        many = len(self._beliefs.workers) > self._limits.most_predicted
        return many and self._narrow and request.attempt == 1

    def _found(self, ids: Sequence[WorkerId]) -> list[WorkerBelief]:
        found = [self._beliefs.find(id) for id in sorted(set(ids))]
        return [worker for worker in found if worker is not None]

    # ── all ──────────────────────────────────────────────────────────────────────────────────

    def every(
        self, request: Request, demand: Demand, now: Seconds
    ) -> Sequence[WorkerBelief] | Hold | Rejected:
        """All that are well and could run it, by id."""
        workers = self._beliefs.workers
        if not workers:
            return self._nobody(request, now)
        able = [worker for worker in workers if could_run(worker, demand)]
        if not able:
            longest = max(worker.info.max_model_len for worker in workers)
            return Rejected(
                request=request.id,
                attempt=request.attempt,
                reason=RejectReason.TOO_LONG,
                message=f"{demand.sequences} sequences of up to {demand.longest} tokens, and at "
                f"least 1 that is generated, fit into no worker: the longest context is "
                f"{longest} tokens, and KV memory limits it too",
                field="prompt",
            )
        well = [worker for worker in able if is_open(worker, now)]
        if not well:
            reason = f"none of the {len(able)} workers that could run it takes new requests now"
            return self.hold(request, reason, now)
        return _now(well, now)

    def _nobody(self, request: Request, now: Seconds) -> Hold | Rejected:
        if self._beliefs.empty_since is None:
            self._beliefs.empty_since = now
        absent_s = now - self._beliefs.empty_since
        if absent_s < self._limits.no_worker_grace_s:
            return self.hold(request, "no worker is there", now)
        return Rejected(
            request=request.id,
            attempt=request.attempt,
            reason=RejectReason.NO_WORKER,
            message=f"no worker has been there for {absent_s:.0f} s; start one, or try again later",
            retry_after_s=self._hold_s,
        )

    def takers(
        self, offer: Offer, request: Request, demand: Demand, now: Seconds
    ) -> Sequence[WorkerBelief] | Hold | Rejected:
        """All that are well and could go on with the offer: its owner if it is mixed, or if nobody
        else is left who can."""
        wanted = exchange_of(offer.numerics, offer.kv)
        able = [
            worker
            for worker in self._beliefs.workers
            if worker.exchange == wanted
            and could_adopt(worker, demand)
            and (worker.role is not Role.PREFILL or worker.info.incarnation == offer.incarnation)
        ]
        well = [worker for worker in able if is_open(worker, now)]
        takers = [worker for worker in well if worker.role is not Role.PREFILL] or well
        if takers:
            return _now(takers, now)
        if any(worker.health is not Health.DRAINING for worker in able):
            return self.hold(request, "no worker that can read the offered KV is well", now)
        return Rejected(
            request=request.id,
            attempt=request.attempt,
            reason=RejectReason.NO_WORKER,
            message=f"nobody is left who can read the KV that {offer.owner} offers",
        )


def _now(workers: list[WorkerBelief], now: Seconds) -> list[WorkerBelief]:
    """What was learned of those that do nothing grows old. Mutates them."""
    for worker in workers:
        worker.pace.fade(now, idle=worker.idle)
    return workers
