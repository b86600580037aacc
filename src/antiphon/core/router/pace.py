"""How far a worker is from its predicted speed, learned from its own reports."""

from math import exp

from antiphon.core.costs import PhaseTime, occupied_s
from antiphon.types import Seconds, WorkerView

_WARM_UP_STEPS = 16
"""First steps of a life that say nothing: caches fill, kernels compile (dynamo's planner took such
samples for load and asked for more workers)."""
_FEWEST_STEPS = 4
"""An interval of fewer steps waits for the next report."""
_MEMORY_S: Seconds = 6.0
"""Of busy time: what was measured before that counts by a third."""
_PRIOR_S: Seconds = 0.1
"""So much predicted time is taken to have been right before anything is measured."""
_LARGEST_MOVE = 2.0
"""One interval counts as at most that far off."""
_FARTHEST = 32.0
_HALF_LIFE_S: Seconds = 120.0
"""Without work, what was learned fades: half of it, as a power of the factor, in that time."""


class Pace:
    """`factor` is measured time over predicted time, of the last busy seconds; 1 before that.

    A model may be wrong by different shares for prompts and for decodes, and a worker does now the
    one and now the other: so times are summed before they are divided, and over seconds.

    The model says how times relate to each other, the factor how fast this machine is: another
    CPU, fewer cores, a noisy neighbour. A worker that was slow and gets no work for it reports no
    step that could show that it has recovered: so what was learned fades, and it is tried again.
    """

    def __init__(self, times: PhaseTime) -> None:
        self._times = times
        self._before: WorkerView | None = None
        self._faded_at: Seconds | None = None
        self._predicted_before_s = _PRIOR_S
        """What `factor` is known from, less what is forgotten."""
        self.factor = 1.0
        self.step_s: Seconds | None = None
        """What a step has taken of late, with all that was in it; None: nothing is known."""

    def fade(self, now: Seconds, *, idle: bool) -> None:
        """Mutates: time has passed; only while it is `idle` does it count."""
        if self.factor == 1.0:
            return
        if idle and self._faded_at is not None and now > self._faded_at:
            self.factor **= 0.5 ** ((now - self._faded_at) / _HALF_LIFE_S)
        self._faded_at = now

    def reported(self, view: WorkerView, now: Seconds) -> None:
        """Take in a report. Mutates. Reports out of order begin a new interval."""
        before = self._before
        if (
            before is None
            or before.steps_total < _WARM_UP_STEPS
            or view.steps_total < before.steps_total
        ):
            self._before = view
            return
        if view.steps_total - before.steps_total < _FEWEST_STEPS:
            return
        self._before = view
        measured_s = view.busy_s_total - before.busy_s_total
        step_s = measured_s / (view.steps_total - before.steps_total)
        self.step_s = step_s if self.step_s is None else (self.step_s + step_s) / 2
        predicted_s = self._predicted_s(before, view)
        if measured_s > 0 and predicted_s > 0:
            off = measured_s / predicted_s / self.factor
            off = min(max(off, 1 / _LARGEST_MOVE), _LARGEST_MOVE)
            self._learn(predicted_s, self.factor * off * predicted_s)
            self._faded_at = now

    def _learn(self, predicted_s: Seconds, measured_s: Seconds) -> None:
        kept_s = self._predicted_before_s * exp(-max(measured_s, predicted_s) / _MEMORY_S)
        self._predicted_before_s = kept_s + predicted_s
        factor = (self.factor * kept_s + measured_s) / self._predicted_before_s
        self.factor = min(max(factor, 1 / _FARTHEST), _FARTHEST)

    def _predicted_s(self, before: WorkerView, view: WorkerView) -> Seconds:
        """What the steps between two reports should have taken.

        Reports count tokens, not phases: each step is taken to decode as many sequences as ran on
        average; what was computed beyond that was prompts.
        """
        steps = view.steps_total - before.steps_total
        tokens = max(0, view.computed_tokens_total - before.computed_tokens_total)
        running = (before.running_sequences + view.running_sequences + 1) // 2
        sequences = min(max(1, running), max(1, tokens // steps))
        context = (before.context_tokens + view.context_tokens) // 2
        decoding_s = steps * self._times.decode_step_s(sequences, context)
        return decoding_s + occupied_s(self._times, max(0, tokens - steps * sequences))
