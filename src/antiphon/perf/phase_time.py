"""The two phases of a request from a model of steps: implements `core.costs.PhaseTime`."""

from dataclasses import dataclass

from antiphon.types import Seconds

from .step_time import FittedStepTime
from .step_work import StepWork


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPhaseTime:
    """Times of whole phases, in constant time. A prompt is computed `step_tokens` a step.

    Raises `ValueError` unless `step_tokens` is at least 1.
    """

    step_time: FittedStepTime
    step_tokens: int = 512

    def __post_init__(self) -> None:
        if self.step_tokens < 1:
            raise ValueError(f"step_tokens must be at least 1, but is {self.step_tokens}")

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """Time to compute `tokens` tokens of one prompt from position `start` on, alone."""
        if tokens <= 0:
            return 0.0
        model, size = self.step_time, self.step_tokens
        steps, rest = -(-tokens // size), (tokens - 1) % size + 1
        full = steps - 1
        end = start + tokens
        # Full chunks end at start + size, start + 2 · size, …; each reads all that is before it.
        context = full * start + size * full * (full + 1) // 2 + end
        attention = tokens * start + tokens * (tokens + 1) // 2
        return (
            steps * (model.fixed_s + model.chunk_s)
            + full * model.token.seconds(size)
            + model.token.seconds(rest)
            + model.sampled.seconds(1)
            + model.context_s * context
            + model.attention_s * attention
        )

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """One step in which `sequences` sequences of that total context get one token each."""
        if sequences <= 0:
            return 0.0
        read = context_tokens + sequences
        return self.step_time.seconds_of(StepWork(sequences, sequences, sequences, read, read))
