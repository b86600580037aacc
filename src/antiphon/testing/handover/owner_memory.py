"""Sealed pages that others read: what is left of KV memory when only hand-overs matter."""

from collections.abc import Sequence

from antiphon.testing.laws import LawBroken
from antiphon.types import OfferedPage, PageId, RequestId

FREE = "something else"
"""What is written to a page as soon as nobody keeps it."""
SHARED = "shared prompt page"


class OwnerMemory:
    """Sealed pages of one owner, readable by all. Page 0 is shared by all prompts."""

    def __init__(self) -> None:
        self.generations: dict[PageId, int] = {}
        self.contents: dict[PageId, str] = {}
        self.references: dict[PageId, int] = {}

    def prefill(self, request: RequestId) -> tuple[PageId, ...]:
        """Write a prompt's KV, or find it written; returns its table, referenced."""
        tail = next(page for page in range(1, 99) if not self.references.get(page))
        table = (0, tail)
        for page, content in zip(table, (SHARED, request), strict=True):
            if not self.references.get(page):
                self._write(page, content)
            self.references[page] = self.references.get(page, 0) + 1
        return table

    def _write(self, page: PageId, content: str) -> None:
        self.contents[page] = content
        self.generations[page] = self.generations.get(page, 0) + 2

    def drop(self, references: Sequence[PageId]) -> None:
        """Page references of a lease that ended. Who has none left is used anew at once."""
        for page in references:
            self.references[page] -= 1
            if self.references[page] < 0:
                raise LawBroken(f"I3: page {page} is given back twice")
            if not self.references[page]:
                self._write(page, FREE)

    def read(self, wanted: OfferedPage) -> str | None:
        """What a reader gets; None: it is not what was offered."""
        if self.generations[wanted.page] != wanted.generation:
            return None
        return self.contents[wanted.page]
