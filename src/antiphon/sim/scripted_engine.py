"""An engine without a model: tokens come from a script, KV is checked instead of computed.

It stands behind the same interface as the real engine (`forward(plan) -> result`), so the
simulator, the gateway's tests and the benchmarks drive the scheduler that serves live traffic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeAlias

from antiphon.core.costs import StepTime
from antiphon.core.end_marks import EndMarks
from antiphon.errors import BugError
from antiphon.types import (
    Chunk,
    DrawnRun,
    Request,
    RequestId,
    Sample,
    Seconds,
    SequenceFault,
    StepPlan,
    StepResult,
    TokenId,
)

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

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `core.costs.StepTime`."""
        return passes * self.step_s


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

    def passes(self, plan: StepPlan) -> int:
        """See `PassEngine`. A sequence that faults ends a run before that pass."""
        return min((self._passes_of(plan, chunk) for chunk in plan.chunks), default=1)

    def passes_s(self, plan: StepPlan, passes: int) -> Seconds:
        """See `PassEngine`."""
        if passes == 1:
            return self._step_time.seconds(plan)
        return self._step_time.repeated_s(plan, passes)

    def lag_s(self, plan: StepPlan) -> Seconds:
        """See `PassEngine`."""
        return 0.0

    def _passes_of(self, plan: StepPlan, chunk: Chunk) -> int:
        if plan.repeat == 1:
            return 1
        marks = EndMarks.of(chunk.request)
        for done in range(plan.repeat):
            drawn = self._script(chunk.request, chunk.sequence, chunk.index + done)
            if isinstance(drawn, str):
                return max(1, done)
            if marks.end(drawn, chunk.index + done + 1):
                return done + 1
        return plan.repeat

    def _repeat(self, plan: StepPlan, passes: int) -> StepResult:
        """The passes one after the other, as a worker that knows of no repeats would ask them."""
        drawn: dict[tuple[RequestId, int], list[TokenId]] = {}
        asked = replace(plan, repeat=1)
        for done in range(passes):
            result = self.forward(asked)
            if result.faults:
                raise BugError(f"step {plan.number} faults in pass {done} of {passes}")
            for sample in result.samples:
                drawn.setdefault((sample.request, sample.sequence), []).append(sample.token)
            asked = _next_pass(asked, drawn)
        return StepResult(
            number=plan.number,
            runs=tuple(
                DrawnRun(request, sequence, tuple(tokens))
                for (request, sequence), tokens in drawn.items()
            ),
            elapsed_s=self.passes_s(plan, passes),
        )

    def forward(self, plan: StepPlan, passes: int = 1) -> StepResult:
        """One pass. Takes no real time: `elapsed_s` says what it would have taken."""
        if passes > 1:
            return self._repeat(plan, passes)
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


def _next_pass(
    plan: StepPlan, drawn: Mapping[tuple[RequestId, int], Sequence[TokenId]]
) -> StepPlan:
    """The same decodes one position on: what the engine was told of pages and ends holds."""
    chunks = tuple(
        replace(
            chunk,
            tokens=(drawn[chunk.request.id, chunk.sequence][-1],),
            start=chunk.start + 1,
            index=chunk.index + 1,
            page_start=chunk.page_start + len(chunk.new_pages),
            new_pages=(),
        )
        for chunk in plan.chunks
    )
    return replace(plan, chunks=chunks, ended=(), copies=())
