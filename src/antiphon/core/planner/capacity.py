"""How many requests a second workers can serve within their targets.

Closed forms over the fitted times of a device: good enough to size a fleet, and quick enough to be
asked at every interval.
"""

from dataclasses import dataclass, replace
from math import ceil, exp, inf, sqrt
from typing import Self

from antiphon.core.costs import PhaseTime, StagedTime
from antiphon.types import Role, Seconds, Slo

_LATE = 0.05
"""Goodput allows one miss in ten: half of it for each target."""
_Z = 1.645
"""So many standard deviations are exceeded one time in twenty."""
_HALVINGS = 30
_SATURATED = 0.8
"""Share of its time that a pool may compute in if no size meets the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The usual request. `uncached`: tokens of its prompt that no cache has.

    `variation`: squared coefficient of variation of prompt lengths; 0, all are alike.
    """

    input_tokens: float
    output_tokens: float
    uncached: float
    variation: float = 0.0

    @property
    def context(self) -> int:
        """Half way through its answer."""
        return round(self.input_tokens + self.output_tokens / 2)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of one kind of worker, which runs on `devices`.

    `kv_tokens`: how many tokens' KV it has memory for. `slower`: how many times as long as `times`
    say everything takes.
    """

    times: PhaseTime
    kv_tokens: int
    max_sequences: int = 256
    devices: int = 1
    slower: float = 1.0

    def at_pace(self, slower: float) -> Self:
        """The same kind of worker, so many times as slow as its times say."""
        return replace(self, slower=slower)

    # ── how many workers ─────────────────────────────────────────────────────────────────────

    def workers(self, role: Role, rate: float, shape: Shape, slo: Slo, most: int) -> int:
        """Least number that serves `rate` requests a second within the targets; 0 for no rate.

        `most` if it takes more. Where no number meets a target, so many that queues don't grow.
        """
        if rate <= 0:
            return 0
        match role:
            case Role.PREFILL:
                return self._prefill_workers(rate, shape, slo.ttft_s, most)
            case Role.DECODE:
                return self._decode_workers(rate, shape, slo.tpot_s, most)
            case Role.MIXED:
                return _whole(rate / (self.mixed_per_s(shape, slo) or self._raw_per_s(shape)), most)

    def _prefill_workers(self, rate: float, shape: Shape, ttft_s: Seconds, most: int) -> int:
        """Few wait beyond the target: M/G/n by Allen and Cunneen's approximation.

        P(wait > t) ≈ C(n, a)·exp(−(n − a)·t / S · 2 / (1 + v)), with the load a = rate·S, Erlang's
        C, and v the squared coefficient of variation of the service time S.
        """
        service_s = self.occupied_s(shape)
        load, spare_s = rate * service_s, ttft_s - self.prefill_s(shape)
        if spare_s <= 0:
            return _whole(load / _SATURATED, most)
        blocked = 1.0  # Erlang's B for n servers, from that for n − 1
        for workers in range(1, most):
            blocked = load * blocked / (workers + load * blocked)
            if workers <= load:
                continue
            waits = blocked / (1 - load / workers * (1 - blocked))
            decay = 2 * (workers - load) / ((1 + shape.variation) * service_s)
            if waits * exp(-decay * min(spare_s, 1e9)) <= _LATE:
                return workers
        return most

    def _decode_workers(self, rate: float, shape: Shape, tpot_s: Seconds, most: int) -> int:
        """Sequences in work are as many as rate times stay (Little), give or take their root.

        A sequence's time per token is a mean over its stay, in which the number in work varies by
        two thirds of a Poisson number's variance.
        """
        places = self.places(shape, tpot_s)
        in_work = rate * self.stay_s(shape, places)
        return _whole((in_work + _Z * sqrt(2 * in_work / 3)) / places, most)

    # ── one worker ───────────────────────────────────────────────────────────────────────────

    def prefill_s(self, shape: Shape) -> Seconds:
        """Time to compute what is not cached of the usual prompt."""
        return self.slower * self.times.prefill_s(max(1, round(shape.uncached)))

    def occupied_s(self, shape: Shape) -> Seconds:
        """How long that keeps the next prompt from beginning: less than it takes, in a pipeline."""
        if not isinstance(self.times, StagedTime):
            return self.prefill_s(shape)
        return self.slower * self.times.occupied_s(max(1, round(shape.uncached)))

    def step_s(self, batch: float, shape: Shape) -> Seconds:
        """One decode step of that many usual sequences."""
        sequences = max(1, round(batch))
        return self.slower * self.times.decode_step_s(sequences, sequences * shape.context)

    def stay_s(self, shape: Shape, batch: float) -> Seconds:
        """How long a sequence decodes in such a batch. Its first token comes of its prompt."""
        return max(0.0, shape.output_tokens - 1) * self.step_s(batch, shape)

    def prefill_per_s(self, shape: Shape, ttft_s: Seconds) -> float:
        """Prompts a second of one alone, so that few wait beyond the target.

        M/D/1 with an exponential tail: P(wait > t) ≈ ρ·exp(−2·(1 − ρ)·t / D). 0 if one alone takes
        longer than the target.
        """
        service_s = self.occupied_s(shape)
        spare_s = ttft_s - self.prefill_s(shape)
        if spare_s <= 0:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            busy = (low + high) / 2
            late = busy * exp(-2 * (1 - busy) * spare_s / service_s)
            low, high = (busy, high) if late <= _LATE else (low, busy)
        return low / service_s

    def batch(self, shape: Shape, tpot_s: Seconds) -> int:
        """Most sequences that decode at once within the target and in memory; 0: not even one."""
        low, high = 0, self._places(shape)
        while low < high:
            middle = (low + high + 1) // 2
            within = self.step_s(middle, shape) <= tpot_s
            low, high = (middle, high) if within else (low, middle - 1)
        return low

    def places(self, shape: Shape, tpot_s: Seconds) -> int:
        """As `batch`; where no batch meets the target, all that there is room for. At least 1."""
        return self.batch(shape, tpot_s) or self._places(shape)

    def decode_per_s(self, shape: Shape, tpot_s: Seconds) -> float:
        """Answers a second from a full batch; inf if answers have one token."""
        batch = self.batch(shape, tpot_s)
        if not batch:
            return 0.0
        stay_s = self.stay_s(shape, batch)
        return batch / stay_s if stay_s else inf

    def mixed_per_s(self, shape: Shape, slo: Slo) -> float:
        """Requests a second that one worker takes from prompt to end.

        A step that also computes prompts takes longer: the share of time that prompts take is not
        there for decoding, and stretches the steps of those who decode.
        """
        low, high = 0.0, self.prefill_per_s(shape, slo.ttft_s)
        for _ in range(_HALVINGS):
            rate = (low + high) / 2
            left = 1 - rate * self.occupied_s(shape)
            enough = left > 0 and self.decode_per_s(shape, slo.tpot_s * left) * left >= rate
            low, high = (rate, high) if enough else (low, rate)
        return low

    def _raw_per_s(self, shape: Shape) -> float:
        """Requests a second from prompt to end, whatever their latencies."""
        places = self._places(shape)
        return _SATURATED / (self.occupied_s(shape) + self.stay_s(shape, places) / places)

    def _places(self, shape: Shape) -> int:
        """Sequences that memory and scheduler have room for; at least 1."""
        fits = int(self.kv_tokens / max(1.0, shape.input_tokens + shape.output_tokens))
        return max(1, min(self.max_sequences, fits))


def _whole(workers: float, most: int) -> int:
    return max(1, ceil(workers)) if workers < most else most  # also for what is no number
