"""When a request would get its first token and how fast the next ones, worker by worker.

    TTFT on w = pace(w) · (queue(w) + prefill(uncached) + the decodes that share those steps)
                + fetch, if some of the prompt comes from the store
                + transfer, if another one goes on         (Mooncake, Qin et al. 2025, algorithm 1)
    TPOT on w = pace(w) · (decode step with the request + stalls by prompts computed on w)

The queue is what keeps the prompt from beginning: of devices in a pipeline, which begin a prompt
before the last one is through, less than those prompts take.

A prompt that is computed between decodes stalls each of them once; TPOT is a mean over a
sequence's tokens, so a stall counts by its share of the tokens that a sequence is taken to have
left. Queue and prefill at the model's pace are the work of an option; the pace only predicts.
"""

from dataclasses import dataclass, field
from math import ceil

from antiphon.core.costs import PhaseTime, occupied_s
from antiphon.core.host_names import store_of
from antiphon.types import Seconds, Slo, WorkerId

from .demand import Demand
from .fetch_pace import FetchPace
from .option import Option
from .prefix_beliefs import HeldPrefixes
from .prefix_plan import PrefixPlan, cheapest
from .worker_belief import WorkerBelief

_STALL_TOKENS = 64
"""Tokens that a running sequence is taken to have left when a stall hits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predictions for one request at one moment. `waited_s`: since it arrived."""

    demand: Demand
    times: PhaseTime
    held: HeldPrefixes | None
    """None: nothing is known of who has what."""
    fetches: FetchPace | None
    slo: Slo
    waited_s: Seconds
    transfer_s: Seconds
    step_tokens: int
    """Tokens of a prompt that a worker computes in one step."""
    kv_bytes_per_token: int
    _plans: dict[int, PrefixPlan] = field(default_factory=dict)
    """Known already, by cached tokens: most workers have the same."""
    _steps: dict[WorkerId, Seconds] = field(default_factory=dict)

    def plan(self, worker: WorkerBelief) -> PrefixPlan:
        """What this worker would have, fetch and compute of the prompt."""
        if self.held is None:
            return self._computed(0)
        own, store, sharing = self.held.of(worker.info)
        plan = self._computed(own, sharing)
        if not store or self.fetches is None:
            return plan
        return cheapest(
            plan,
            store,
            self.fetches,
            at=store_of(worker.info.id),
            kv_bytes_per_token=self.kv_bytes_per_token,
            pace=worker.pace.factor,
            computed=lambda cached: self._computed(cached, sharing),
        )

    def _computed(self, cached: int, sharing: int = 0) -> PrefixPlan:
        """All but `cached` tokens is computed: at least one, which is sampled from."""
        plan = self._plans.get(cached)
        if plan is None:
            tokens = self.demand.tokens
            uncached = max(1, tokens - min(cached, self.demand.prompt))
            start = tokens - uncached
            seconds = self.times.prefill_s(uncached, start)
            busy_s = occupied_s(self.times, uncached, start)
            plan = self._plans[cached] = PrefixPlan(
                start, uncached, seconds, busy_s, sharing=sharing
            )
        return plan

    def is_short(self, worker: WorkerBelief) -> bool:
        """Between two tokens of what decodes there, the prompt would fit into one TPOT target."""
        gap_s = self.plan(worker).compute_s + self._step_s(worker)
        return worker.pace.factor * gap_s <= self.slo.tpot_s

    def prefill(self, worker: WorkerBelief) -> Option:
        """It computes the prompt, another one goes on."""
        plan = self.plan(worker)
        queued_s = self._queued_s(worker, plan.uncached)
        moved_s = plan.fetch_s + self.transfer_s
        ttft_s = queued_s + worker.pace.factor * plan.compute_s + moved_s
        return self._option(worker, plan, ttft_s, queued_s, 0.0, plan.occupied_s + moved_s)

    def decode(self, worker: WorkerBelief) -> Option:
        """It goes on with a prompt that another one computed."""
        tpot_s = worker.pace.factor * (self._step_s(worker) + self.stalls_s(worker, computes=False))
        return self._option(worker, None, 0.0, 0.0, tpot_s, 0.0)

    def whole(self, worker: WorkerBelief) -> Option:
        """It does all. Whatever decodes there waits meanwhile, and that counts as work."""
        load, pace, plan = worker.load, worker.pace.factor, self.plan(worker)
        own_s, queued_s = plan.compute_s, self._queued_s(worker, plan.uncached)
        tpot_s = pace * (self._step_s(worker) + self.stalls_s(worker, computes=True))
        ttft_s = queued_s + plan.fetch_s + pace * own_s
        work_s = plan.fetch_s + own_s * (1 + load.decoding)
        return self._option(worker, plan, ttft_s, queued_s, tpot_s, work_s)

    def stalls_s(self, worker: WorkerBelief, *, computes: bool) -> Seconds:
        """What a token waits for prompts that are computed there, at the model's pace: for the
        request's own prompt, too, if the worker `computes` it."""
        load = worker.load
        if not computes:
            return load.queued_s / _STALL_TOKENS
        own_s = self.plan(worker).compute_s
        return (load.queued_s + own_s) / _STALL_TOKENS if load.decoding else 0.0

    def _queued_s(self, worker: WorkerBelief, uncached: int) -> Seconds:
        """What others take of the worker until the request has its first token there."""
        load = worker.load
        seconds = load.queued_s
        if load.decoding:
            steps = ceil((load.queued_tokens + uncached) / self.step_tokens)
            seconds += steps * self.times.decode_step_s(load.decoding, load.context_tokens)
        return worker.pace.factor * seconds

    def _step_s(self, worker: WorkerBelief) -> Seconds:
        """A decode step with the request, at the model's pace."""
        id = worker.info.id
        seconds = self._steps.get(id)
        if seconds is None:
            load, demand = worker.load, self.demand
            seconds = self._steps[id] = self.times.decode_step_s(
                load.sequences + demand.sequences, load.context_tokens + demand.context
            )
        return seconds

    def _option(
        self,
        worker: WorkerBelief,
        plan: PrefixPlan | None,
        ttft_s: Seconds,
        queued_s: Seconds,
        tpot_s: Seconds,
        work_s: Seconds,
    ) -> Option:
        """`plan`: of the prompt; None: it is not computed there."""
        slo, load, demand = self.slo, worker.load, self.demand
        return Option(
            (worker.info.id,),
            ttft_s,
            queued_s,
            tpot_s,
            min(1 - (self.waited_s + ttft_s) / slo.ttft_s, 1 - tpot_s / slo.tpot_s),
            work_s,
            load.requests,
            worker.chosen,
            plan.fetch if plan else 0,
            (ttft_s - queued_s) / slo.ttft_s / (1 + (plan.sharing if plan else 0)),
            plan.cached / demand.tokens if plan else 0.0,
            load.queued_tokens + (plan.uncached if plan else 0),
            load.context_tokens + demand.context,
        )
