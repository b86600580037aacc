"""Which requests had better be refused at once, since no worker could meet their targets.

    arrival ──── waits behind others, is computed ────► first token ──── decodes ────► end
                 TTFT: queue here and there                TPOT: of those that decode *then*

Mooncake (Qin et al. 2025, §7): who is refused by what decodes at present is refused too late and
too often, and loads of prefill and decode rise in turns; so what decodes is predicted for the time
at which the prompt would be computed. Each request is taken to decode for the same time, the mean
of the last ones: of those that decode now the share that is over by then is known, and whoever is
before this one decodes, too. Before one has ended, as long again as those that decode have by then:
nobody is refused for what nobody has seen.

Memory is predicted alike: where there is no room, it comes with the ends of those that have it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from antiphon.core.costs import occupied_s
from antiphon.types import (
    Rejected,
    RejectReason,
    Request,
    Role,
    RouterConfig,
    Seconds,
)

from .forecast import Forecast
from .router_limits import RouterLimits
from .turnover import Turnover
from .worker_belief import WorkerBelief

_CAUTION = 2.0
"""A predicted wait counts that many times over: under overload whoever is taken last is always at
the edge, and half of those who are predicted to be just in time come too late. That does not hold
for tenants that have far less than others: they are not taken last. So there is always room left
for them, between the edge of the others and their own."""
_MOST_CAUTION = 4.0
"""And at most so many, as if half of the work were for tenants that go before: where very many
tenants have little each, nearly all of it is, and whoever has somewhat more than they would be
refused for a wait of milliseconds."""
_MODEST = 0.75
"""Share of the mean below which a tenant is not taken last."""
_LEAST_RETRY_S: Seconds = 1.0
_LONGEST_RETRY_S: Seconds = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Requests that are to be placed before the one in question, and their prompts' tokens.

    `share`: what its tenant has on the workers, over the mean of tenants. `overtaken`: what part of
    what they do is for tenants whose turn comes before its own.
    """

    requests: int = 0
    tokens: int = 0
    share: float = 1.0
    overtaken: float = 0.0

    @property
    def caution(self) -> float:
        """How many times a predicted wait counts."""
        if self.share < _MODEST:
            return 1.0
        return min(_CAUTION / (1 - self.overtaken), _MOST_CAUTION)


class _Way(NamedTuple):
    """One way to serve it, at its best. The larger ratio to the target decides; of equal ones the
    first token that comes sooner, so that the order of workers says nothing."""

    ttft_s: Seconds
    tpot_s: Seconds


class EarlyRejection:
    """Applies `router.admission`. Changes nothing."""

    def __init__(self, config: RouterConfig, limits: RouterLimits, turnover: Turnover) -> None:
        self._admission, self._shed_from = config.admission, config.shed_from
        self._limits, self._turnover = limits, turnover

    def sheds(self, request: Request) -> bool:
        """May it be refused at all?"""
        return self._admission != "all" and request.priority >= self._shed_from

    def refusal(
        self,
        request: Request,
        forecast: Forecast,
        workers: Sequence[WorkerBelief],
        ahead: Ahead,
        now: Seconds,
    ) -> Rejected | None:
        """Why it is refused; None: somebody would meet its targets. `workers` could all run it."""
        slo, waited_s = forecast.slo, forecast.waited_s
        prospect = Prospect(
            forecast=forecast,
            ahead=ahead,
            computed_share=self._turnover.computed_share,
            decode_s=self._turnover.decodes_s(now),
            max_sequences=self._limits.max_sequences,
            usable_share=self._limits.usable_share,
            predicts=self._admission == "early-reject",
        )
        way = min(
            prospect.ways(workers),
            key=lambda way: (
                max((waited_s + way.ttft_s) / slo.ttft_s, way.tpot_s / slo.tpot_s),
                way.ttft_s,
                way.tpot_s,
            ),
        )
        first_s = waited_s + way.ttft_s
        if first_s <= slo.ttft_s and way.tpot_s <= slo.tpot_s:
            return None
        if first_s / slo.ttft_s >= way.tpot_s / slo.tpot_s:
            reason, wait_s = RejectReason.TTFT_UNREACHABLE, first_s - slo.ttft_s
            what = f"the first token may take {first_s:.2f} s, and the target is {slo.ttft_s:g} s"
        else:
            reason, wait_s = RejectReason.TPOT_UNREACHABLE, prospect.decode_s
            token_ms, target_ms = way.tpot_s * 1e3, slo.tpot_s * 1e3
            what = f"a token may take {token_ms:.1f} ms, and the target is {target_ms:g} ms"
        return Rejected(
            request=request.id,
            attempt=request.attempt,
            reason=reason,
            message=f"the servers are too busy: {what}",
            retry_after_s=min(max(wait_s, _LEAST_RETRY_S), _LONGEST_RETRY_S),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """One request's latencies behind all that is before it. `decode_s`: how long each request is
    taken to decode. `predicts`: for when its prompt would be computed, or for now."""

    forecast: Forecast
    ahead: Ahead
    computed_share: float
    decode_s: Seconds
    max_sequences: int | None
    usable_share: float
    predicts: bool

    def ways(self, workers: Sequence[WorkerBelief]) -> list[_Way]:
        """Each worker that does all of it; and, where there is a prefill pool, the best pair."""
        decoders = [one for one in workers if one.role is not Role.PREFILL]
        pool = [one for one in workers if one.role is Role.PREFILL] if decoders else []
        alone = decoders or list(workers)
        mixed = sum(one.role is Role.MIXED for one in alone)
        prompts = max(1, len(pool) + mixed if pool else len(alone))
        ways: list[_Way] = []
        for one in alone:
            waits_s = max(self._queued_s(one, prompts), self._short_s(one, len(alone)))
            ttft_s = self.ahead.caution * waits_s + self._own_s(one)
            ways.append(_Way(ttft_s, self._tpot_s(one, ttft_s, len(alone), computes=True)))
        if pool:
            caution = self.ahead.caution
            ttft_s = min(caution * self._queued_s(one, prompts) + self._own_s(one) for one in pool)
            tpot_s = min(self._handed_s(one, ttft_s, len(alone)) for one in decoders)
            ways.append(_Way(ttft_s, tpot_s))
        return ways

    def _own_s(self, worker: WorkerBelief) -> Seconds:
        plan = self.forecast.plan(worker)
        return plan.fetch_s + worker.pace.factor * plan.compute_s

    def _queued_s(self, worker: WorkerBelief, sharers: int) -> Seconds:
        """Until its prompt is begun: what is queued there, and a share of what comes before it."""
        forecast, load, ahead = self.forecast, worker.load, self.ahead
        seconds, tokens = load.queued_s, load.queued_tokens
        if ahead.requests:
            computed = ahead.tokens * self.computed_share / sharers
            mean = max(1, round(ahead.tokens * self.computed_share / ahead.requests))
            seconds += occupied_s(forecast.times, mean) * ahead.requests / sharers
            tokens += round(computed)
        if load.decoding:
            steps = ceil((tokens + forecast.plan(worker).uncached) / forecast.step_tokens)
            seconds += steps * forecast.times.decode_step_s(load.decoding, load.context_tokens)
        return worker.pace.factor * seconds

    def _tpot_s(
        self, worker: WorkerBelief, after_s: Seconds, sharers: int, *, computes: bool
    ) -> Seconds:
        """A decode step with it in `after_s`, and the prompts that are computed in between."""
        forecast, load, demand = self.forecast, worker.load, self.forecast.demand
        coming = load.sequences - load.decoding
        if self.predicts:
            sequences = load.decoding * self._left(after_s) + coming
            sequences += self.ahead.requests / sharers
        else:
            sequences = float(load.decoding)
        mean = load.context_tokens / load.sequences if load.sequences else 0.0
        step_s = forecast.times.decode_step_s(
            ceil(sequences) + demand.sequences, round(sequences * mean) + demand.context
        )
        stalls_s = forecast.stalls_s(worker, computes=computes)
        predicted_s = worker.pace.factor * (step_s + stalls_s)
        if worker.pace.step_s is None or not load.decoding:
            return predicted_s
        # Prompts that come all the time are in each step, which the model does not know.
        now_s = forecast.times.decode_step_s(load.decoding, round(load.decoding * mean))
        return max(predicted_s, worker.pace.step_s + worker.pace.factor * (step_s - now_s))

    def _handed_s(self, worker: WorkerBelief, after_s: Seconds, sharers: int) -> Seconds:
        """The same for who goes on with another one's prompt: it waits for room after its first
        token, which counts as time between tokens."""
        tpot_s = self._tpot_s(worker, after_s, sharers, computes=False)
        if not self.decode_s:
            return tpot_s
        waits_s = self.ahead.caution * max(0.0, self._short_s(worker, sharers) - after_s)
        return tpot_s * (1 + waits_s / self.decode_s)

    def _left(self, after_s: Seconds) -> float:
        """The share of what decodes now that still does then."""
        return max(0.0, 1 - after_s / self.decode_s) if self.decode_s else 1.0

    def _short_s(self, worker: WorkerBelief, sharers: int) -> Seconds:
        """When there is room for it, and for its share of what comes before it."""
        load = worker.load
        if not (self.predicts and load.sequences):
            return 0.0
        wanted = 1 + self.ahead.requests / sharers
        share = 0.0
        pages, total = worker.running_pages_of(self.forecast.demand), worker.total_pages
        if pages is not None and total is not None and load.pages:
            counted = max(1, load.sequences - load.roomless)
            pages = max(pages, load.pages / counted)  # with what it will grow by
            usable = total * self.usable_share
            share = (load.pages + (wanted + load.roomless) * pages - usable) / load.pages
        if self.max_sequences is not None:
            sequences = load.sequences + wanted * self.forecast.demand.sequences
            share = max(share, (sequences - self.max_sequences) / load.sequences)
        return self.decode_s * max(0.0, share)
