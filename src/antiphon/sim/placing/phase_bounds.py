"""What workers serve at best: bounds that a placement search prunes by.

Each asks the device's own step time about steps as full as they may be, of calls of the usual
shape: no memory is lost, and nothing waits but prompts for each other. So they bound from above
what the simulator finds; a search's `slack` covers what means hide of a distribution.

Prompts that come by chance wait, so workers can't be busy all of the time: with one queue for n
workers whose prompts take S, P(wait > t) ≈ C(n, r·S)·exp(−2·(n − r·S)·t / S), with Erlang's C (the
tail of M/D/n by Allen and Cunneen). Lengths that differ, and a queue at each worker, are worse.

With several pipeline stages a step of prompts occupies each for `seconds`, and the next follows it;
a step with decodes takes until each sequence has its next token (see `perf`), all stages included.
"""

from collections.abc import Sequence
from math import exp, inf

from antiphon.core.goodput import GOAL
from antiphon.core.placement import Instance
from antiphon.perf.queueing import erlang_c
from antiphon.types import Chunk, Request, RequestId, SamplingParams, Seconds, Slo, StepPlan

from ..fleet.timed_engine import DeviceTime
from .users_at_rate import CallShape
from .worker_times import WorkerKind

_REQUEST = Request(
    id=RequestId("usual"), prompt=(1,), sampling=SamplingParams(max_tokens=1, seed=0)
)
_HALVINGS = 20


class PhaseBounds:
    """Implements `core.placement.Bounds` for calls of `shape` under `slo`.

    Goodput allows one call in ten to miss: all of these may be late with their first token, so this
    must come in time for a prompt that one in ten exceeds, and nine in ten usual prompts must not
    wait too long. With `max_sequences` a worker has no more at once.
    """

    def __init__(
        self, kinds: Sequence[WorkerKind], shape: CallShape, slo: Slo, *, max_sequences: int
    ) -> None:
        self._kinds = {kind.instance: kind for kind in kinds}
        self._shape, self._slo, self._max_sequences = shape, slo, max_sequences
        self._prompts: dict[tuple[Instance, int, int], float] = {}
        """What has been asked of prompts already."""

    def price_per_hour(self, instance: Instance) -> float:
        """See `Bounds`."""
        return self._kinds[instance].price_per_hour

    def prefill_per_s(self, instance: Instance, step_tokens: int, workers: int = 1) -> float:
        """See `Bounds`: steps full of usual prompts, of which few wait beyond the target."""
        key = instance, step_tokens, workers
        if (known := self._prompts.get(key)) is None:
            known = self._prompts[key] = self._prefill_per_s(*key)
        return known

    def _prefill_per_s(self, instance: Instance, step_tokens: int, workers: int) -> float:
        kind, shape = self._kinds[instance], self._shape
        if self._alone_s(kind, step_tokens, shape.late_uncached) > self._slo.ttft_s:
            return 0.0
        service_s = self._prompt_s(kind.times, shape.uncached, step_tokens)
        usual_s = self._alone_s(kind, step_tokens, max(1, round(shape.uncached)))
        spare_s = max(0.0, self._slo.ttft_s - usual_s)
        low, high = 0.0, workers / service_s
        for _ in range(_HALVINGS):
            rate = (low + high) / 2
            decay = 2 * (workers - rate * service_s) / service_s
            late = erlang_c(rate, service_s, workers) * exp(-decay * spare_s)
            low, high = (rate, high) if late <= 1 - GOAL else (low, rate)
        return low

    def decode_per_s(self, instance: Instance) -> float:
        """See `Bounds`: the batch that serves most within the target and in memory."""
        kind, shape = self._kinds[instance], self._shape
        best, tokens = 0.0, max(1.0, shape.output - 1)
        for batch in _batches(self._most_sequences(kind)):
            gap_s = _decode_s(kind.times, batch, shape.context)
            if gap_s > self._slo.tpot_s and shape.late_output > 1:
                break
            best = max(best, batch / (tokens * gap_s))
        return best

    def mixed_per_s(self, instance: Instance, step_tokens: int, *, prefill_first: bool) -> float:
        """See `Bounds`. In a steady state a batch of n has n / output new prompts each step."""
        kind, shape = self._kinds[instance], self._shape
        if self._alone_s(kind, step_tokens, shape.late_uncached) > self._slo.ttft_s:
            return 0.0
        best, tokens = 0.0, max(1.0, shape.output - 1)
        prompt_s = self._prompt_s(kind.times, shape.uncached, step_tokens)
        for batch in _batches(self._most_sequences(kind)):
            prompts = batch / tokens
            new = prompts * shape.uncached
            if prefill_first:
                gap_s = _decode_s(kind.times, batch, shape.context) + prompts * prompt_s
            elif batch + new <= step_tokens:
                gap_s = _mixed_s(kind.times, batch, shape, new)
            else:
                break
            if gap_s > self._slo.tpot_s and shape.late_output > 1:
                break
            best = max(best, batch / (tokens * gap_s))
        return best

    def _most_sequences(self, kind: WorkerKind) -> int:
        """In memory, each at its usual size."""
        fits = kind.kv_tokens / max(1.0, self._shape.context)
        return max(1, int(min(self._max_sequences, fits)))

    def _alone_s(self, kind: WorkerKind, step_tokens: int, length: int) -> Seconds:
        """The first token of a prompt of that length, on an idle worker."""
        total, start = 0.0, 0
        while start < length:
            chunk = min(step_tokens, length - start)
            plan = _plan([(start, chunk)])
            total += kind.times.seconds(plan)
            start += chunk
            if start == length:
                total += kind.times.lag_s(plan)
        return total

    def _prompt_s(self, times: DeviceTime, length: float, step_tokens: int) -> Seconds:
        """How long one usual prompt occupies a stage, at the best of batch sizes."""
        tokens = max(1, round(length))
        if tokens >= step_tokens:
            whole, rest = divmod(tokens, step_tokens)
            starts = [(place * step_tokens, step_tokens) for place in range(whole)]
            full_s = sum(times.seconds(_plan([chunk])) for chunk in starts)
            if not rest:
                return full_s
            # The rest shares its step with the next prompt.
            last_s = times.seconds(_plan([(whole * step_tokens, step_tokens)]))
            return full_s + last_s * rest / step_tokens
        together = _batches(step_tokens // tokens)
        return min(
            (times.seconds(_plan([(0, tokens)] * prompts)) / prompts for prompts in together),
            default=inf,
        )


def _batches(most: int) -> Sequence[int]:
    """1 to `most`, so dense that the best is missed by a percent or two."""
    found: list[int] = []
    batch = 1
    while batch < most:
        found.append(batch)
        batch = max(batch + 1, round(batch * 1.04))
    return [*found, most]


def _decode_s(times: DeviceTime, batch: int, context: float) -> Seconds:
    return times.seconds(_plan([(round(context), 1)] * batch))


def _mixed_s(times: DeviceTime, batch: int, shape: CallShape, new: float) -> Seconds:
    """One step of so many decodes and `new` tokens of prompts: between whole numbers, in line."""
    decodes = [(round(shape.context), 1)] * batch
    low = int(new)
    begin = round(max(0.0, shape.input - shape.uncached) + shape.uncached / 2)
    below, above = (
        times.seconds(_plan([*decodes, (begin, tokens)] if tokens else decodes))
        for tokens in (low, low + 1)
    )
    return below + (new - low) * (above - below)


def _plan(chunks: Sequence[tuple[int, int]]) -> StepPlan:
    return StepPlan(
        number=0,
        chunks=tuple(
            Chunk(request=_REQUEST, sequence=0, tokens=(1,) * length, start=start, samples=(0,))
            for start, length in chunks
        ),
    )
