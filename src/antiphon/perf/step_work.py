"""What a step has to do, in the five counts that its time depends on."""

from typing import NamedTuple

from antiphon.types import StepPlan


class StepWork(NamedTuple):
    """The work of one step; all counts of an empty step are 0.

    `tokens`: rows of the matrix products. `sampled`: rows of the head, and draws. `chunks`: rows of
    the page tables. `context`: KV entries that are read, Σ (start + length) over chunks, the memory
    traffic of decode. `attention`: pairs of a token and an entry that it attends to,
    Σ (length · start + length · (length + 1) / 2), the arithmetic of prefill: for a whole prompt
    about length²/2, DistServe's third term.
    """

    tokens: int = 0
    sampled: int = 0
    chunks: int = 0
    context: int = 0
    attention: int = 0

    def plus(self, start: int, length: int, *, sampled: bool) -> "StepWork":
        """This work and one more chunk of `length` tokens from position `start` on."""
        return StepWork(
            self.tokens + length,
            self.sampled + sampled,
            self.chunks + 1,
            self.context + start + length,
            self.attention + length * start + length * (length + 1) // 2,
        )


def work_of(plan: StepPlan) -> StepWork:
    """The work of all chunks of a plan. Page copies are not counted: they are rare and short."""
    tokens = sampled = context = attention = 0
    for chunk in plan.chunks:
        length, start = len(chunk.tokens), chunk.start
        end = start + length
        tokens += length
        context += end
        attention += length * (start + end + 1)
        if chunk.samples:
            sampled += 1
    return StepWork(tokens, sampled, len(plan.chunks), context, attention // 2)


def has_decodes(plan: StepPlan) -> bool:
    """Whether a sequence in it could not go on without its token of the step before."""
    return any(chunk.start and len(chunk.tokens) == 1 for chunk in plan.chunks)
