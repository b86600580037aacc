"""KV without numbers: each slot remembers which tokens its content depends on.

A real slot's content depends on all tokens up to its position. Here a slot holds a chained hash
of them, so a wrong read is found however it came about.

Between workers it behaves as shared memory does: others may read a page at any time, and only its
generation (odd while it is written, even once it is sealed) and its checksum say what they got.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.core.faults import Corrupt, Damage, PartialWrite, StaleGeneration
from antiphon.errors import BugError
from antiphon.types import (
    NO_PAGE,
    Chunk,
    KvGroup,
    OfferedPage,
    PageId,
    SequenceKey,
    StepPlan,
    TokenId,
)

_EMPTY = 0
PageContent: TypeAlias = tuple[int, ...]


GARBAGE = -1
"""What no slot holds that was computed."""


@dataclass(frozen=True, slots=True)
class PageCopy:
    """What somebody got who copied a page: its content, and its generation meanwhile."""

    generation: int
    content: PageContent

    def damaged(self, damage: Damage) -> "PageCopy":
        """What he got instead. Pure."""
        first, rest = self.content[:-1], self.content[-1:]
        match damage:
            case Corrupt():
                return PageCopy(self.generation, (*first, *(one + 1 for one in rest)))
            case PartialWrite():
                return PageCopy(self.generation, (*first, GARBAGE))
            case StaleGeneration():
                return PageCopy(self.generation + 2, (GARBAGE,) * len(self.content))

    def verified(self, wanted: OfferedPage) -> PageContent | None:
        """The content, if it is what was promised; None: it is not."""
        good = self.generation == wanted.generation and checksum(self.content) == wanted.checksum
        return self.content if good else None


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

    def __init__(self, page_tokens: int, groups: Sequence[KvGroup] = (KvGroup(),)) -> None:
        """`groups`: whose pages an entry of a table has, one after the other."""
        self.page_tokens = page_tokens
        self._windows = tuple(group.window for group in groups for _ in range(group.pages))
        """Of each page of an entry: how far a row sees."""
        self.entry_pages = len(self._windows)
        self._pages: dict[PageId, list[int]] = {}
        self._generations: dict[PageId, int] = {}
        self._sequences: dict[SequenceKey, _Sequence] = {}

    # ── what other workers see ───────────────────────────────────────────────────────────────

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        """Nothing more is written to these until they are used anew: what a reader will expect."""
        for page in pages:
            generation = self._generations.get(page, 0)
            if not generation:
                raise BugError(f"page {page} is sealed and was never written")
            self._generations[page] = generation + generation % 2
        return tuple(
            OfferedPage(page, self._generations[page], checksum(self._page(page))) for page in pages
        )

    def copy(self, page: PageId) -> PageCopy:
        """What another worker gets when it copies that page now, whatever it is."""
        return PageCopy(self._generations.get(page, 0), tuple(self._page(page)))

    def read(self, wanted: OfferedPage) -> PageContent | None:
        """What another worker gets when it copies that page now; None: it is not what it was."""
        return self.copy(wanted.page).verified(wanted)

    def content(self, page: PageId) -> PageContent:
        """What a page holds now."""
        return tuple(self._page(page))

    def pull(self, page: PageId, content: Sequence[int]) -> None:
        """Write what was copied from another page into this one."""
        self._begin_write(page, 0)
        self._pages[page] = list(content)

    def _begin_write(self, page: PageId, slot: int) -> None:
        generation = self._generations.get(page, 0)
        if generation % 2:
            return
        if generation and slot:
            raise BugError(f"I22: page {page} is sealed, and slot {slot} of it is written")
        self._generations[page] = generation + 1

    # ── what the worker itself does ──────────────────────────────────────────────────────────

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
            self.pull(copy.target, self.content(copy.source))
        for chunk in plan.chunks:
            self._write(chunk)
        for chunk in plan.chunks:
            self._read(chunk)

    def _page(self, page: PageId) -> list[int]:
        return self._pages.setdefault(page, [_EMPTY] * self.page_tokens)

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
        windows = self._windows
        if len(sequence.table) // len(windows) * self.page_tokens < end:
            raise BugError(f"the page table of {name} does not reach position {end - 1}")
        sequence.tokens += chunk.tokens[len(known) :]
        sequence.computed = end
        sequence.extend_chain(end)
        for position in range(chunk.start, end):
            entry, slot = divmod(position, self.page_tokens)
            for place in range(len(windows)):
                page = sequence.table[entry * len(windows) + place]
                if page == NO_PAGE:
                    raise BugError(f"I52: {name} writes position {position} to no page")
                self._begin_write(page, slot)
                self._page(page)[slot] = _said(place, sequence.chain[position])

    def _read(self, chunk: Chunk) -> None:
        sequence = self._sequences[SequenceKey(chunk.request.id, chunk.sequence)]
        size = self.page_tokens
        for entry in range(-(-sequence.computed // size)):
            begin, end = entry * size, min((entry + 1) * size, sequence.computed)
            chain = sequence.chain[begin:end]
            for place, window in enumerate(self._windows):
                first = max(0, chunk.start + 1 - window - begin) if window else 0
                page = sequence.table[entry * len(self._windows) + place]
                wanted = [_said(place, one) for one in chain[first:]]
                if wanted and self._page(page)[first : end - begin] != wanted:
                    raise BugError(
                        f"I5: {chunk.request.id}/{chunk.sequence} reads page {page} for positions "
                        f"from {begin} on, which holds something else"
                    )


def _said(place: int, chained: int) -> int:
    """What a slot holds in the page at that place of an entry: other layers, other numbers."""
    return chained if place == 0 else hash((place, chained))


def checksum(content: Sequence[int]) -> int:
    """Two pages with the same checksum hold the same, as far as anybody can tell."""
    return hash(tuple(content)) % 2**64
