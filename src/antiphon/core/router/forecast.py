"""When a request would get its first token and how fast the next ones, worker by worker.

    TTFT on w = pace(w) · (queue(w) + prefill(uncached) + the decodes that share those steps)
                + transfer, if another one goes on         (Mooncake, Qin et al. 2025, algorithm 1)
    TPOT on w = pace(w) · (decode step with the request + stalls by prompts computed on w)

A prompt that is computed between decodes stalls each of them once; TPOT is a mean over a
sequence's tokens, so a stall counts by its share of the tokens that a sequence is taken to have
left. Queue and prefill at the model's pace are the work of an option; the pace only predicts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from antiphon.core.costs import PhaseTime
from antiphon.types import Request, Seconds, Slo, WorkerId

from .demand import Demand
from .option import Option
from .worker_belief import WorkerBelief

CachedTokens = Callable[[Request, WorkerId], int]
"""How many tokens of a request's prompt a worker is believed to hold already. Pure."""

_STALL_TOKENS = 64
"""Tokens that a running sequence is taken to have left when a stall hits it."""


def nothing_cached(request: Request, worker: WorkerId) -> int:
    """For a router that knows nothing of what workers hold."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predictions for one request at one moment. `waited_s`: since it arrived."""

    request: Request
    demand: Demand
    times: PhaseTime
    cached: CachedTokens
    slo: Slo
    waited_s: Seconds
    transfer_s: Seconds
    step_tokens: int
    """Tokens of a prompt that a worker computes in one step."""
    _prefill_s: dict[int, Seconds] = field(default_factory=dict)
    """Known already, by uncached tokens: most workers have the same."""

    def uncached(self, worker: WorkerBelief) -> int:
        """Tokens that this worker would have to compute: at least one, which is sampled from."""
        cached = min(self.cached(self.request, worker.info.id), len(self.request.prompt))
        return max(1, self.demand.tokens - max(0, cached))

    def prefill_s(self, uncached: int) -> Seconds:
        """The request's own prefill, at the model's pace."""
        seconds = self._prefill_s.get(uncached)
        if seconds is None:
            seconds = self.times.prefill_s(uncached, self.demand.tokens - uncached)
            self._prefill_s[uncached] = seconds
        return seconds

    def is_short(self, worker: WorkerBelief) -> bool:
        """Between two tokens of what decodes there, the prompt would fit into one TPOT target."""
        gap_s = self.prefill_s(self.uncached(worker)) + self._step_s(worker)
        return worker.pace.factor * gap_s <= self.slo.tpot_s

    def prefill(self, worker: WorkerBelief) -> Option:
        """It computes the prompt, another one goes on."""
        uncached = self.uncached(worker)
        own_s, queued_s = self.prefill_s(uncached), self._queued_s(worker, uncached)
        ttft_s = queued_s + worker.pace.factor * own_s + self.transfer_s
        return self._option(worker, ttft_s, queued_s, 0.0, own_s + self.transfer_s)

    def decode(self, worker: WorkerBelief) -> Option:
        """It goes on with a prompt that another one computed."""
        stalls_s = worker.load.queued_s / _STALL_TOKENS
        tpot_s = worker.pace.factor * (self._step_s(worker) + stalls_s)
        return self._option(worker, 0.0, 0.0, tpot_s, 0.0)

    def whole(self, worker: WorkerBelief) -> Option:
        """It does all. Whatever decodes there waits meanwhile, and that counts as work."""
        load, pace, uncached = worker.load, worker.pace.factor, self.uncached(worker)
        own_s, queued_s = self.prefill_s(uncached), self._queued_s(worker, uncached)
        stalls_s = (load.queued_s + own_s) / _STALL_TOKENS if load.decoding else 0.0
        tpot_s = pace * (self._step_s(worker) + stalls_s)
        work_s = own_s * (1 + load.decoding)
        return self._option(worker, queued_s + pace * own_s, queued_s, tpot_s, work_s)

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
        load, demand = worker.load, self.demand
        return self.times.decode_step_s(
            load.sequences + demand.sequences, load.context_tokens + demand.context
        )

    def _option(
        self,
        worker: WorkerBelief,
        ttft_s: Seconds,
        queued_s: Seconds,
        tpot_s: Seconds,
        work_s: Seconds,
    ) -> Option:
        slo = self.slo
        return Option(
            workers=(worker.info.id,),
            ttft_s=ttft_s,
            queued_s=queued_s,
            tpot_s=tpot_s,
            headroom=min(1 - (self.waited_s + ttft_s) / slo.ttft_s, 1 - tpot_s / slo.tpot_s),
            work_s=work_s,
            requests=worker.load.requests,
            chosen=worker.chosen,
        )
