"""KV without numbers: each slot remembers which tokens its content depends on.

A real slot's content depends on all tokens up to its position. Here a slot holds a chained hash
of them, so a wrong read is found however it came about.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from antiphon.errors import BugError
from antiphon.types import Chunk, PageId, SequenceKey, StepPlan, TokenId

_EMPTY = 0


@dataclass(slots=True)
class _Sequence:
    tokens: list[TokenId]
    """Known by position: prompt and resumed tokens, then what chunks computed."""
    chain: list[int] = field(default_factory=list)
    """Per position, what a slot that holds it must contain."""
    table: list[PageId] = field(default_factory=list)
    computed: int = 0

    def extend_chain(self, length: int) -> None:
        for position in range(len(self.chain), length):
            before = self.chain[position - 1] if position else _EMPTY
            self.chain.append(hash((before, self.tokens[position])))


class ShadowKv:
    """Follows every page table and write, and refuses to read anything but a sequence's own KV.

    It catches every way in which a scheduler can hand a sequence the wrong memory: a page shared
    too early, reused while still read, forgotten in a copy, or a prefix hit on other content.
    """

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._pages: dict[PageId, list[int]] = {}
        self._sequences: dict[SequenceKey, _Sequence] = {}

    def run(self, plan: StepPlan) -> None:
        """Apply the plan. Raises `BugError` if a chunk reads or writes what is not its own."""
        for key in plan.ended:
            self._sequences.pop(key, None)
        targets = [copy.target for copy in plan.copies]
        if len(set(targets)) < len(targets) or not set(targets).isdisjoint(
            copy.source for copy in plan.copies
        ):
            raise BugError("the copies of one plan depend on their order")
        for copy in plan.copies:
            self._pages[copy.target] = list(self._page(copy.source))
        for chunk in plan.chunks:
            self._write(chunk)
        for chunk in plan.chunks:
            self._read(chunk)

    def content(self, page: PageId) -> tuple[int, ...]:
        """What a page holds now."""
        return tuple(self._page(page))

    def pull(self, page: PageId, content: Iterable[int]) -> None:
        """Another worker's page has been copied into this one."""
        self._pages[page] = list(content)

    def _page(self, page: PageId) -> list[int]:
        return self._pages.setdefault(page, [_EMPTY] * self._page_tokens)

    def _write(self, chunk: Chunk) -> None:
        name, request = f"{chunk.request.id}/{chunk.sequence}", chunk.request
        key = SequenceKey(request.id, chunk.sequence)
        sequence = self._sequences.get(key)
        if sequence is None:
            resumed = request.resumed[chunk.sequence] if request.resumed else ()
            sequence = self._sequences[key] = _Sequence([*request.prompt, *resumed])
        if len(sequence.table) < chunk.page_start:
            raise BugError(f"the page table of {name} has a hole before {chunk.page_start}")
        sequence.table[chunk.page_start :] = chunk.new_pages
        end = chunk.start + len(chunk.tokens)
        known = tuple(sequence.tokens[chunk.start : end])
        if len(sequence.tokens) < chunk.start or known != chunk.tokens[: len(known)]:
            raise BugError(f"{name} computes other tokens at {chunk.start} than it has")
        if len(sequence.table) * self._page_tokens < end:
            raise BugError(f"the page table of {name} does not reach position {end - 1}")
        sequence.tokens += chunk.tokens[len(known) :]
        sequence.computed = end
        sequence.extend_chain(end)
        for position in range(chunk.start, end):
            entry, slot = divmod(position, self._page_tokens)
            self._page(sequence.table[entry])[slot] = sequence.chain[position]

    def _read(self, chunk: Chunk) -> None:
        sequence = self._sequences[SequenceKey(chunk.request.id, chunk.sequence)]
        size = self._page_tokens
        for entry in range(-(-sequence.computed // size)):
            wanted = sequence.chain[entry * size : min((entry + 1) * size, sequence.computed)]
            page = sequence.table[entry]
            if self._page(page)[: len(wanted)] != wanted:
                raise BugError(
                    f"I5: {chunk.request.id}/{chunk.sequence} reads page {page} for positions from "
                    f"{entry * size} on, which holds something else"
                )
