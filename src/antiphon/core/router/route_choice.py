"""From the workers that could run a request to the best route among them.

    prefill pool ─┐
                  ├─ split: best prefill and best decode worker that can read its pages ─┐
    decode pool ──┤                                                                     ├─► best
                  └─ local: a decode worker computes the prompt itself, if the rule says ┤
    mixed ────────── whole ─────────────────────────────────────────────────────────────┘

The rule (conditional disaggregation): a decode worker computes a prompt while there is a prefill
pool only if the prompt is short (it fits between two tokens, within one TPOT target) or the pool
is busy (waiting for it would miss the TTFT target, or it has no room for what it would
offer); if that is sooner; and if what decodes there stays within the TPOT target.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.types import Role, Seconds

from .eligibility import (
    can_offer_now,
    could_adopt,
    has_enough,
    has_memory,
    has_room,
    may_offer,
)
from .forecast import Forecast
from .option import Option, joined
from .scorers import Scorer
from .worker_belief import WorkerBelief


@dataclass(frozen=True, slots=True)
class NoRoom:
    """All who could run the request are full."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteChoice:
    """One request's choice of a route. `hold_s`: when it could be asked again.

    `conditional`: decode workers may compute prompts while there is a prefill pool.

    Where all who could compute its prompt have prompts for more than `queue_s`, it waits: who is
    next is decided when one of them has time, not long before. A tenant that has less than others
    there (`share` of the mean below 1) waits for less: it goes before them at the worker, too. It
    waits as others do for room at a worker that only decodes it.
    """

    forecast: Forecast
    scorer: Scorer
    max_sequences: int | None
    hold_s: Seconds
    conditional: bool = True
    queue_s: Seconds
    share: float = 1.0

    def best(self, workers: Sequence[WorkerBelief], *, whole: bool = False) -> Option | NoRoom:
        """The route, as an option of one or two workers, or of one if it is to be `whole`.

        Reads `workers`, sorted by id, only.
        """
        decoders = [worker for worker in workers if worker.role is not Role.PREFILL]
        if not decoders:
            ready = self._to_compute(workers)
            full = f"all {len(workers)} prefill workers are full"
            return self._pick(self._wholes(ready), full, ready)
        roomy, ready = self._with_room(decoders), self._to_compute(decoders)
        demand = self.forecast.demand
        takers = [one for one in decoders if could_adopt(one, demand, drawn=1)]
        partners = [one.exchange for one in takers]
        pool = [
            worker
            for worker in workers
            if worker.role is Role.PREFILL
            and worker.exchange in partners
            and may_offer(worker, demand)
        ]
        full = f"all {len(decoders)} workers that decode are full"
        if whole or not pool:
            return self._pick(self._wholes(ready), full, ready)
        split = self._split(pool, self._with_room(takers))
        both = [worker for worker in ready if worker.role is Role.MIXED]
        mixed = self._wholes(both)
        remote = [split] if split and not self._have_enough(pool) else []
        options = [*remote, *mixed, *self._local(roomy, split, pool)]
        reason = f"half of the pool of all {len(pool)} prefill workers is taken" if roomy else full
        return self._pick(options, reason, [*pool, *both])

    def best_decode(self, workers: Sequence[WorkerBelief]) -> Option | NoRoom:
        """Who of `workers`, all able to read the offer, goes on."""
        options = [self.forecast.decode(worker) for worker in self._with_room(workers)]
        full = f"all {len(workers)} workers that decode are full"
        return self.scorer.best(options) if options else NoRoom(full)

    def _pick(
        self, options: Sequence[Option], otherwise: str, computing: Sequence[WorkerBelief]
    ) -> Option | NoRoom:
        if not options and self._have_enough(computing):
            otherwise = f"all {len(computing)} workers have prompts for {self.queue_s:g} s"
        return self.scorer.best(options) if options else NoRoom(otherwise)

    def _have_enough(self, workers: Sequence[WorkerBelief]) -> bool:
        return bool(workers) and all(has_enough(one, self._sent_ahead_s) for one in workers)

    @property
    def _sent_ahead_s(self) -> Seconds:
        """For how long a worker may have prompts, with this one's tenant in mind."""
        return self.queue_s * (2 if self.share < 1 else 1)

    def _with_room(self, workers: Sequence[WorkerBelief]) -> list[WorkerBelief]:
        demand, most = self.forecast.demand, self.max_sequences
        return [one for one in workers if has_room(one, demand, most)]

    def _to_compute(self, workers: Sequence[WorkerBelief]) -> list[WorkerBelief]:
        """Those to whom its prompt may be sent to be computed."""
        if self.share >= 1:
            return self._with_room(workers)
        demand, most, ahead_s = self.forecast.demand, self.max_sequences, self._sent_ahead_s
        return [
            one for one in workers if has_room(one, demand, most) or not has_enough(one, ahead_s)
        ]

    def _wholes(self, workers: Sequence[WorkerBelief]) -> list[Option]:
        if self._have_enough(workers):
            return []
        return [self.forecast.whole(worker) for worker in workers]

    def _split(self, pool: Sequence[WorkerBelief], ready: Sequence[WorkerBelief]) -> Option | None:
        """Best pair, of those who `could_adopt` it and have room. Headroom is the smaller of both
        sides', so each side is chosen alone."""
        takers: dict[object, list[Option]] = {}
        for worker in ready:
            if worker.exchange is not None:
                takers.setdefault(worker.exchange, []).append(self.forecast.decode(worker))
        owners: dict[object, list[Option]] = {}
        for worker in pool:
            if worker.exchange in takers and can_offer_now(worker, self.forecast.demand):
                owners.setdefault(worker.exchange, []).append(self.forecast.prefill(worker))
        pairs = [
            joined(self.scorer.best(prefills), self.scorer.best(takers[exchange]))
            for exchange, prefills in owners.items()
        ]
        return self.scorer.best(pairs) if pairs else None

    def _local(
        self,
        ready: Sequence[WorkerBelief],
        split: Option | None,
        pool: Sequence[WorkerBelief],
    ) -> list[Option]:
        """Decode workers that may compute the prompt themselves: the rule at the top."""
        if not (self.conditional and self.scorer.by_prediction):
            return []
        forecast, slo = self.forecast, self.forecast.slo
        if split:
            remote_s = split.ttft_s
            busy = self._is_busy(split)
        else:
            remote_s = self.hold_s + min(forecast.prefill(worker).ttft_s for worker in pool)
            busy = True
        local: list[Option] = []
        for worker in ready:
            if worker.role is not Role.DECODE or not (busy or forecast.is_short(worker)):
                continue
            if has_enough(worker, self.queue_s):
                continue
            option = forecast.whole(worker)
            starts = split is not None or has_memory(worker, forecast.demand, self.max_sequences)
            if starts and option.ttft_s < remote_s and option.tpot_s <= slo.tpot_s:
                local.append(option)
        return local

    def _is_busy(self, split: Option) -> bool:
        """Whether waiting for others makes the prefill pool miss the TTFT target.

        A prompt that is too long for the target anyhow must wait for longer than it takes itself.
        """
        alone_s = split.ttft_s - split.queued_s
        left_s = self.forecast.slo.ttft_s - self.forecast.waited_s
        return split.ttft_s > left_s and (alone_s <= left_s or split.queued_s > alone_s)
