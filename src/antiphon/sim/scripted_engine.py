"""An engine without a model: tokens come from a script, KV is checked instead of computed.

It stands behind the same interface as the real engine (`forward(plan) -> result`), so the
simulator, the gateway's tests and the benchmarks drive the scheduler that serves live traffic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from antiphon.core.costs import StepTime
from antiphon.types import Request, Sample, Seconds, SequenceFault, StepPlan, StepResult, TokenId

from .shadow_kv import ShadowKv

Script: TypeAlias = Callable[[Request, int, int], TokenId | str]
"""(request, sequence, index) → the token that the "model" says there, or a fault's message."""


def hashed_script(vocab_size: int) -> Callable[[Request, int, int], TokenId]:
    """Tokens that depend on (prompt, seed, sequence, index) alone, as a real engine's must."""

    def token(request: Request, sequence: int, index: int) -> TokenId:
        facts = repr((request.prompt, request.sampling.seed, sequence, index)).encode()
        return int.from_bytes(blake2b(facts, digest_size=8).digest(), "big") % vocab_size

    return token


@dataclass(frozen=True, slots=True)
class ConstantStepTime:
    """Every step takes the same time."""

    step_s: Seconds = 0.0

    def seconds(self, plan: StepPlan) -> Seconds:
        """See `core.costs.StepTime`."""
        return self.step_s


class ScriptedEngine:
    """Answers plans from a script, in the time that a cost model says."""

    def __init__(
        self,
        script: Script,
        step_time: StepTime | None = None,
        shadow: ShadowKv | None = None,
    ) -> None:
        self._script = script
        self._step_time = step_time or ConstantStepTime()
        self._shadow = shadow

    def seconds(self, plan: StepPlan) -> Seconds:
        """How long a pass over the plan takes."""
        return self._step_time.seconds(plan)

    def forward(self, plan: StepPlan) -> StepResult:
        """One pass. Takes no real time: `elapsed_s` says what it would have taken."""
        if self._shadow is not None:
            self._shadow.run(plan)
        samples: list[Sample] = []
        faults: list[SequenceFault] = []
        for chunk in plan.chunks:
            for sequence in chunk.samples:
                match self._script(chunk.request, sequence, chunk.index):
                    case int(token):
                        samples.append(Sample(chunk.request.id, sequence, token))
                    case message:
                        faults.append(SequenceFault(chunk.request.id, sequence, message))
        return StepResult(
            number=plan.number,
            samples=tuple(samples),
            faults=tuple(faults),
            elapsed_s=self.seconds(plan),
        )
