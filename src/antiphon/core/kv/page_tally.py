"""How many pages serve one purpose, when several of its owners may refer to the same page."""

from collections import Counter
from collections.abc import Iterable

from antiphon.errors import BugError
from antiphon.types import PageId


class PageTally:
    """A multiset of pages whose length counts each page once."""

    def __init__(self) -> None:
        self._times: Counter[PageId] = Counter()

    def __len__(self) -> int:
        """Pages that are in it, each once."""
        return len(self._times)

    def __contains__(self, page: PageId) -> bool:
        """Whether the page was added more often than removed."""
        return page in self._times

    def add(self, pages: Iterable[PageId]) -> None:
        """Count each of them once more."""
        self._times.update(pages)

    def remove(self, pages: Iterable[PageId]) -> None:
        """Undo one `add` of the same pages."""
        times = self._times
        for page in pages:
            left = times[page] - 1  # a counter has a zero for what it lacks
            if left < 0:
                raise BugError(f"page {page} is taken out of a tally that does not have it")
            if left:
                times[page] = left
            else:
                times.pop(page)  # `del` of a counter is no C
