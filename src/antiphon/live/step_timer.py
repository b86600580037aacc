"""Times single steps on a real engine: shapes become plans, plans go in, seconds come out."""

from collections.abc import Sequence
from dataclasses import replace

from antiphon.perf import Limits, StepShape
from antiphon.types import (
    Chunk,
    Engine,
    PageCopy,
    Request,
    RequestId,
    SamplingParams,
    Seconds,
    SequenceKey,
    StepPlan,
)


class StepTimer:
    """Runs each of `shapes` as often as asked. The engine is fresh, and all its pages are free.

    A shape's sequences are set up by its first pass; later ones compute the same positions again,
    so that each finds its page tables ready, as a step in the middle of serving does. Sequences of
    one step never share a page (reading it would be too quick); different shapes do.
    """

    def __init__(
        self, engine: Engine, limits: Limits, vocab_size: int, shapes: Sequence[StepShape]
    ) -> None:
        self._engine = engine
        self._page_tokens, self._entry_pages = limits.page_tokens, limits.entry_pages
        longest = max(chunk.start + chunk.tokens for shape in shapes for chunk in shape.chunks)
        self._tokens = tuple(number * 7919 % vocab_size for number in range(longest))
        self._shapes = shapes
        self._plans: dict[int, StepPlan] = {}
        self._fill(max(self._pages(shape) for shape in shapes))

    def first_pass(self, number: int) -> Seconds:
        """Set up shape `number`, and run it once: colder than it will ever be again."""
        plan = self._plan(number)
        elapsed_s = self._engine.forward(plan).elapsed_s
        ready = tuple(
            replace(chunk, page_start=len(chunk.new_pages), new_pages=()) for chunk in plan.chunks
        )
        self._plans[number] = replace(plan, chunks=ready)
        return elapsed_s

    def time(self, number: int) -> Seconds:
        """Run shape `number` once more."""
        return self._engine.forward(self._plans[number]).elapsed_s

    def forget(self, number: int) -> None:
        """End the sequences of shape `number`."""
        plan = self._plans.pop(number)
        ended = tuple(SequenceKey(chunk.request.id, 0) for chunk in plan.chunks)
        self._engine.forward(StepPlan(number=0, chunks=(), ended=ended))

    def _pages(self, shape: StepShape) -> int:
        return sum(self._pages_of(c.start + c.tokens) for c in shape.chunks)

    def _pages_of(self, tokens: int) -> int:
        return -(-tokens // self._page_tokens) * self._entry_pages

    def _fill(self, pages: int) -> None:
        """Compute one entry of a page table and copy its pages to the others.

        Memory that nobody wrote yet is one page of zeros in the processor's cache, whatever its
        size: attention over it would look far too quick.
        """
        count = min(self._page_tokens, len(self._tokens))
        request = self._request("fill", count)
        first = tuple(range(self._entry_pages))
        chunk = Chunk(request=request, sequence=0, tokens=request.prompt, start=0, new_pages=first)
        self._engine.forward(StepPlan(number=0, chunks=(chunk,)))
        copies = tuple(PageCopy(page % len(first), page) for page in range(len(first), pages))
        ended = (SequenceKey(request.id, 0),)
        self._engine.forward(StepPlan(number=0, chunks=(), copies=copies, ended=ended))

    def _plan(self, number: int) -> StepPlan:
        chunks: list[Chunk] = []
        page = 0
        for place, (start, tokens, sampled) in enumerate(self._shapes[number].chunks):
            end = start + tokens
            pages = self._pages_of(end)
            request = self._request(f"{number}-{place}", end)
            chunks.append(
                Chunk(
                    request=request,
                    sequence=0,
                    tokens=request.prompt[start:],
                    start=start,
                    new_pages=tuple(range(page, page + pages)),
                    samples=(0,) if sampled else (),
                )
            )
            page += pages
        return StepPlan(number=0, chunks=tuple(chunks))

    def _request(self, name: str, length: int) -> Request:
        return Request(
            id=RequestId(name),
            prompt=self._tokens[:length],
            sampling=SamplingParams(max_tokens=1, seed=0),
        )
