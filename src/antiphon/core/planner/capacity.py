"""How many requests a second one worker of a role can serve within its targets.

Closed forms over the fitted times of a device: good enough to size a fleet, and quick enough to be
asked at every interval.
"""

from dataclasses import dataclass
from math import exp

from antiphon.core.costs import PhaseTime
from antiphon.types import Seconds, Slo

_MISSES = 0.1
"""Goodput allows one in ten; half of it is left to chance elsewhere."""
_HALVINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The usual request. `uncached`: tokens of its prompt that no cache has."""

    input_tokens: float
    output_tokens: float
    uncached: float

    @property
    def context(self) -> int:
        """Half way through its answer."""
        return round(self.input_tokens + self.output_tokens / 2)


class Capacity:
    """Of one kind of worker. `kv_tokens`: how many tokens' KV it has memory for."""

    def __init__(self, times: PhaseTime, kv_tokens: int, *, max_sequences: int = 256) -> None:
        self._times = times
        self._kv_tokens = kv_tokens
        self._max_sequences = max_sequences

    def prefill_s(self, shape: Shape) -> Seconds:
        """Time to compute what is not cached of the usual prompt."""
        return self._times.prefill_s(max(1, round(shape.uncached)))

    def prefill_per_s(self, shape: Shape, ttft_s: Seconds) -> float:
        """Prompts a second, so that few wait beyond the target.

        M/D/1 with an exponential tail: P(wait > t) ≈ ρ·exp(−2·(1 − ρ)·t / D). 0 if one alone takes
        longer than the target.
        """
        service_s = self.prefill_s(shape)
        spare_s = ttft_s - service_s
        if spare_s <= 0:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            busy = (low + high) / 2
            late = busy * exp(-2 * (1 - busy) * spare_s / service_s)
            low, high = (busy, high) if late <= _MISSES / 2 else (low, busy)
        return low / service_s

    def batch(self, shape: Shape, tpot_s: Seconds) -> int:
        """Most sequences that decode at once within the target and in memory; 0: not even one."""
        fits = int(self._kv_tokens / max(1.0, shape.input_tokens + shape.output_tokens))
        low, high = 0, min(self._max_sequences, fits)
        while low < high:
            middle = (low + high + 1) // 2
            step_s = self._times.decode_step_s(middle, middle * shape.context)
            low, high = (middle, high) if step_s <= tpot_s else (low, middle - 1)
        return low

    def decode_per_s(self, shape: Shape, tpot_s: Seconds) -> float:
        """Answers a second from a full batch."""
        batch = self.batch(shape, tpot_s)
        if not batch or shape.output_tokens <= 1:
            return float(batch)
        step_s = self._times.decode_step_s(batch, batch * shape.context)
        return batch / (shape.output_tokens * step_s)

    def mixed_per_s(self, shape: Shape, slo: Slo) -> float:
        """Requests a second that one worker takes from prompt to end.

        A step that also computes prompts takes longer: the share of time that prompts take is not
        there for decoding, and stretches the steps of those who decode.
        """
        low, high = 0.0, self.prefill_per_s(shape, slo.ttft_s)
        for _ in range(_HALVINGS):
            rate = (low + high) / 2
            left = 1 - rate * self.prefill_s(shape)
            enough = left > 0 and self.decode_per_s(shape, slo.tpot_s * left) * left >= rate
            low, high = (rate, high) if enough else (low, rate)
        return low
