"""An engine without a model: tokens come from a script, KV is checked instead of computed.

It stands behind the same interface as the real engine (`forward(plan) -> result`), so the
simulator, the gateway's tests and the benchmarks drive the scheduler that serves live traffic.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from antiphon.core.costs import StepTime
from antiphon.errors import BugError
from antiphon.types import (
    Chunk,
    PageId,
    Request,
    Sample,
    Seconds,
    SequenceKey,
    StepPlan,
    StepResult,
    TokenId,
)

Script: TypeAlias = Callable[[Request, int, int], TokenId]
"""(request, sequence, index) → the token that the "model" says there."""


def hashed_script(vocab_size: int) -> Script:
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


@dataclass(slots=True)
class _Sequence:
    table: list[PageId] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    """What was computed or matched so far, by position."""


class ShadowKv:
    """Remembers which (token, position) each KV slot holds, and refuses to read anything else.

    It catches every way in which a scheduler can hand a sequence the wrong memory: a page shared
    too early, reused while still read, forgotten in a copy, or a prefix hit on other content.
    """

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._slots: dict[tuple[PageId, int], tuple[TokenId, ...]] = {}
        self._sequences: dict[SequenceKey, _Sequence] = {}

    def run(self, plan: StepPlan) -> None:
        """Apply the plan. Raises `BugError` if a chunk would read KV that is not its own."""
        for key in plan.ended:
            self._sequences.pop(key, None)
        for copy in plan.copies:
            for slot in range(self._page_tokens):
                content = self._slots.get((copy.source, slot))
                if content is not None:
                    self._slots[copy.target, slot] = content
        for chunk in plan.chunks:
            self._write(chunk)
        for chunk in plan.chunks:
            self._read(chunk)

    def _write(self, chunk: Chunk) -> None:
        sequence = self._sequences.setdefault(
            SequenceKey(chunk.request.id, chunk.sequence), _Sequence()
        )
        if len(sequence.table) < chunk.page_start:
            raise BugError(f"page table of {chunk.request.id} has a hole at {chunk.page_start}")
        sequence.table[chunk.page_start :] = chunk.new_pages
        if len(sequence.tokens) < chunk.start:
            known = (*chunk.request.prompt, *sequence.tokens[len(chunk.request.prompt) :])
            sequence.tokens = list(known[: chunk.start])
        if len(sequence.tokens) < chunk.start:
            raise BugError(f"{chunk.request.id} computes at {chunk.start} with tokens missing")
        sequence.tokens[chunk.start :] = chunk.tokens
        for position in range(chunk.start, chunk.start + len(chunk.tokens)):
            self._slots[self._slot(sequence, position)] = tuple(sequence.tokens[: position + 1])

    def _read(self, chunk: Chunk) -> None:
        sequence = self._sequences[SequenceKey(chunk.request.id, chunk.sequence)]
        for position in range(len(sequence.tokens)):
            held = self._slots.get(self._slot(sequence, position))
            if held != tuple(sequence.tokens[: position + 1]):
                raise BugError(
                    f"{chunk.request.id}/{chunk.sequence} reads position {position} of a page "
                    f"that holds something else"
                )

    def _slot(self, sequence: _Sequence, position: int) -> tuple[PageId, int]:
        entry, slot = divmod(position, self._page_tokens)
        return sequence.table[entry], slot


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

    def forward(self, plan: StepPlan) -> StepResult:
        """One pass. Takes no real time: `elapsed_s` says what it would have taken."""
        if self._shadow is not None:
            self._shadow.run(plan)
        samples = tuple(
            Sample(chunk.request.id, sequence, self._script(chunk.request, sequence, chunk.index))
            for chunk in plan.chunks
            for sequence in chunk.samples
        )
        return StepResult(
            number=plan.number, samples=samples, elapsed_s=self._step_time.seconds(plan)
        )
