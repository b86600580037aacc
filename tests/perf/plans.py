"""Plans of steps for tests: what a step's time depends on, and nothing else."""

from collections.abc import Iterable

from antiphon.types import Chunk, Request, RequestId, SamplingParams, StepPlan


def chunk(start: int, length: int, *, sampled: bool = True) -> Chunk:
    """`length` tokens from position `start` on."""
    return Chunk(
        request=Request(id=RequestId("r"), prompt=(0,), sampling=SamplingParams(seed=0)),
        sequence=0,
        tokens=(0,) * length,
        start=start,
        samples=(0,) if sampled else (),
    )


def decodes(contexts: Iterable[int]) -> StepPlan:
    """One token of each sequence, behind so many that are there."""
    return plan(*(chunk(context, 1) for context in contexts))


def plan(*chunks: Chunk) -> StepPlan:
    """A step of these chunks."""
    return StepPlan(number=0, chunks=chunks)
