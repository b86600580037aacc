"""Sealed pages that others read: what is left of KV memory when only hand-overs matter."""

from collections.abc import Sequence

from antiphon.sim.law import LawBroken
from antiphon.types import OfferedPage, PageId, RequestId

FREE = "something else"
"""What is written to a page as soon as nobody keeps it."""
SHARED = "shared prompt page"


class OwnerMemory:
    """Sealed pages of one owner, readable by all. Page 0 is shared by all prompts.

    Generations are named after who had the page written, not counted: then states are one that
    differ only in how often a page was used before. No two writes of a page have the same.
    """

    def __init__(self) -> None:
        self.generations: dict[PageId, int] = {}
        self.contents: dict[PageId, str] = {}
        self.references: dict[PageId, int] = {}

    def prefill(self, request: RequestId, attempt: int) -> tuple[PageId, ...]:
        """Write a prompt's KV, or find it written; returns its table, referenced."""
        number = int(request[1:])
        own = (1 + 2 * number, 2 + 2 * number)
        table = (0, next(page for page in own if not self.references.get(page)))
        for page, content in zip(table, (SHARED, request), strict=True):
            if not self.references.get(page):
                self.contents[page] = content
                self.generations[page] = 2 * (1 + number + 8 * attempt)
            self.references[page] = self.references.get(page, 0) + 1
        return table

    def drop(self, references: Sequence[PageId]) -> None:
        """Page references of a lease that ended. Who has none left is used anew at once."""
        for page in references:
            self.references[page] -= 1
            if self.references[page] < 0:
                raise LawBroken(f"I3: page {page} is given back twice")
            if not self.references[page]:
                self.contents[page] = FREE
                self.generations[page] = 0

    def read(self, wanted: OfferedPage) -> str | None:
        """What a reader gets; None: it is not what was offered."""
        if self.generations[wanted.page] != wanted.generation:
            return None
        return self.contents[wanted.page]
