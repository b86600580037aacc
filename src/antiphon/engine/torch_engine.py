"""Plans in, tokens out: the engine that computes a real model."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import torch

from antiphon.errors import BugError
from antiphon.types import (
    NO_PAGE,
    Chunk,
    ComingKv,
    ExpertTokens,
    Request,
    Sample,
    SequenceFault,
    SequenceKey,
    StepPlan,
    StepResult,
    TokenId,
)

from .batch import Batch, PageTable, Run
from .kv_memory import PagedKv
from .model import Model
from .sampler import Draw, sample

Kv = TypeVar("Kv", bound=PagedKv)


@dataclass(slots=True)
class _Sequence:
    """What the engine remembers of a sequence: where its KV lies and what it has said.

    `outputs` by index: tokens that an earlier attempt delivered, that were sampled here, or that a
    chunk feeds back. Entries are set, not appended, so that computing them again after a preemption
    counts none twice, and a prefix hit that skips their computation loses none.
    """

    table: PageTable = field(default_factory=PageTable)
    outputs: list[TokenId] = field(default_factory=list)

    def record(self, index: int, tokens: tuple[TokenId, ...]) -> None:
        """Outputs number `index …` are `tokens`."""
        if index > len(self.outputs):
            raise BugError(f"outputs {len(self.outputs)} to {index - 1} of a sequence are unknown")
        self.outputs[index : index + len(tokens)] = tokens


class TorchEngine(Generic[Kv]):
    """Runs one model on one KV memory. Not thread-safe: one `forward` at a time."""

    def __init__(self, model: Model[Kv], memory: Kv) -> None:
        self._model = model
        self._memory = memory
        self._sequences: dict[SequenceKey, _Sequence] = {}

    @property
    def held(self) -> int:
        """Number of sequences that are remembered; 0 once all have ended."""
        return len(self._sequences)

    def forward(self, plan: StepPlan) -> StepResult:
        """One pass over the plan: forget, copy pages, compute, sample.

        Raises `BugError` if the plan names pages, tokens or positions that don't exist, or feeds a
        sequence whose earlier outputs are unknown.
        """
        return self._step(plan, self._model.forward)

    def forward_as_it_comes(self, plan: StepPlan, coming: ComingKv) -> StepResult:
        """See `LayeredEngine`."""

        def forward(batch: Batch, memory: Kv) -> torch.Tensor | None:
            return self._model.forward_as_it_comes(batch, memory, coming)

        return self._step(plan, forward)

    def expert_tokens(self) -> ExpertTokens | None:
        """See `CountingEngine`."""
        return self._model.expert_counts.said()

    def forget_counts(self) -> None:
        """What was computed so far was for nobody."""
        self._model.expert_counts.forget()

    def _step(
        self, plan: StepPlan, forward: Callable[[Batch, Kv], torch.Tensor | None]
    ) -> StepResult:
        started = time.perf_counter()
        for key in plan.ended:
            self._sequences.pop(key, None)
        self._memory.copy(plan.copies)
        drawn = self._compute(plan.chunks, forward) if plan.chunks else []
        return StepResult(
            number=plan.number,
            samples=tuple(result for result in drawn or () if isinstance(result, Sample)),
            faults=tuple(result for result in drawn or () if isinstance(result, SequenceFault)),
            elapsed_s=time.perf_counter() - started,
            broken_off=drawn is None,
        )

    def _compute(
        self, chunks: tuple[Chunk, ...], forward: Callable[[Batch, Kv], torch.Tensor | None]
    ) -> list[Sample | SequenceFault] | None:
        batch = Batch.of([self._run(chunk) for chunk in chunks], self._memory.layout)
        self._memory.begin_write(batch.places.ravel() // self._memory.layout.page_stride)
        logits = forward(batch, self._memory)
        if logits is None:
            return None
        draws = self._draws(chunks)
        drawn = sample(logits.numpy(), draws)
        for draw, result in zip(draws, drawn, strict=True):
            if isinstance(result, Sample):
                sequence = self._sequence(draw.request, draw.sequence)
                sequence.record(draw.index, (result.token,))
        return drawn

    def _run(self, chunk: Chunk) -> Run:
        """Take over the chunk's pages and outputs."""
        self._check(chunk)
        sequence = self._sequence(chunk.request, chunk.sequence)
        sequence.table.extend(chunk.page_start, chunk.new_pages)
        index = chunk.start - len(chunk.request.prompt)
        if index + len(chunk.tokens) > 0:
            sequence.record(max(index, 0), chunk.tokens[max(-index, 0) :])
        return Run(
            tokens=chunk.tokens,
            start=chunk.start,
            table=sequence.table,
            sampled=bool(chunk.samples),
        )

    def _draws(self, chunks: tuple[Chunk, ...]) -> list[Draw]:
        draws: list[Draw] = []
        sampling = (chunk for chunk in chunks if chunk.samples)
        for row, chunk in enumerate(sampling):
            for number in chunk.samples:
                outputs = self._sequence(chunk.request, number).outputs
                if len(outputs) < chunk.index:
                    raise BugError(
                        f"{chunk.request.id}/{number} samples output {chunk.index}, "
                        f"but only {len(outputs)} earlier ones are known"
                    )
                draws.append(
                    Draw(
                        request=chunk.request,
                        sequence=number,
                        index=chunk.index,
                        row=row,
                        outputs=outputs[: chunk.index],
                    )
                )
        return draws

    def _sequence(self, request: Request, number: int) -> _Sequence:
        key = SequenceKey(request.id, number)
        sequence = self._sequences.get(key)
        if sequence is None:
            sequence = self._sequences[key] = _Sequence()
            if number < len(request.resumed):
                sequence.outputs.extend(request.resumed[number])
        return sequence

    def _check(self, chunk: Chunk) -> None:
        """The kernels check nothing: what is outside the arrays must stop here."""
        tokens = np.asarray(chunk.tokens, np.int64)
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < self._model.spec.vocab_size:
            raise BugError(f"{chunk.request.id} has a token id outside the vocabulary")
        if chunk.start < 0 or chunk.start + len(tokens) > self._model.context_len:
            raise BugError(
                f"{chunk.request.id} computes beyond the context of {self._model.context_len}"
            )
        for page in chunk.new_pages:
            if page != NO_PAGE:
                self._memory.check(page)
