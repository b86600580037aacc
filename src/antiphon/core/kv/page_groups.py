"""Which pages of a sequence its layers still read: those of a sliding window pass with it.

    entry of a page table    [ every layer that sees all │ those of one window │ of another ]

    blocks                    0     1     2     3     4  │ computed up to here
    layers that see all       held  held  held  held  held
    layers of a window        –     –     –     held  held     what is behind it is given back

An entry holds `page_tokens` tokens of all layers, in one page or several of one size. What passes
is given back in whole blocks, so that a block's pages of one group share their fate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.types import KvGroup


@dataclass(frozen=True, slots=True)
class Window:
    """A group of layers that see `size` positions back, each row's own included.

    `places`: which pages of an entry are theirs.
    """

    size: int
    places: range


def entry_pages(groups: Sequence[KvGroup]) -> int:
    """Pages of an entry of a page table."""
    return sum(group.pages for group in groups)


class PageGroups:
    """Counts of pages. `entry_pages`: of an entry; `lasting`: those of them that never pass."""

    def __init__(self, groups: Sequence[KvGroup], *, page_tokens: int, block_tokens: int) -> None:
        self.page_tokens, self.block_tokens = page_tokens, block_tokens
        windows: list[Window] = []
        lasting: list[int] = []
        begin = 0
        for group in groups:
            places = range(begin, begin + group.pages)
            begin = places.stop
            if group.window:
                # Even one that ends at the row itself keeps a block: so a match is of something.
                windows.append(Window(max(2, group.window), places))
            else:
                lasting += places
        self.entry_pages = begin
        self.lasting, self.windows = tuple(lasting), tuple(windows)

    @property
    def block_pages(self) -> int:
        """Pages of a whole block."""
        return self.block_tokens // self.page_tokens * self.entry_pages

    def entries(self, tokens: int) -> int:
        """Entries that hold so many tokens."""
        return -(-tokens // self.page_tokens)

    def first_block(self, window: Window, position: int) -> int:
        """The first block that a row at `position`, or a later one, sees through the window."""
        return max(0, position + 1 - window.size) // self.block_tokens

    def first_places(self, position: int) -> list[int]:
        """For each place of an entry: from which place of a table on a row at `position`, or a
        later one, reads pages there."""
        first = [0] * self.entry_pages
        for window in self.windows:
            begin = self.first_block(window, position) * self.block_pages
            first[window.places.start : window.places.stop] = [begin] * len(window.places)
        return first

    def blocks_back(self, window: Window) -> int:
        """How many blocks before a block's first position its row sees, at most."""
        return -(-(window.size - 1) // self.block_tokens)

    def whole_pages(self, tokens: int) -> int:
        """Pages of so many tokens of which nothing was given back."""
        return self.entries(tokens) * self.entry_pages

    def passing_pages(self, tokens: int, step_tokens: int) -> int:
        """The windows' pages that a sequence of so many tokens holds, at most, while no step
        computes more than `step_tokens` of it."""
        entries = self.entries(tokens)
        return sum(
            len(window.places) * min(entries, self.entries(self._span(window, step_tokens)))
            for window in self.windows
        )

    def most_pages(self, tokens: int, step_tokens: int) -> int:
        """All pages that it then holds."""
        return self.entries(tokens) * len(self.lasting) + self.passing_pages(tokens, step_tokens)

    def most_tokens(self, pages: int, step_tokens: int, limit: int) -> int:
        """The longest sequence, of at most `limit` tokens, that `pages` pages suffice for."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.most_pages(middle, step_tokens) <= pages:
                low = middle
            else:
                high = middle - 1
        return low

    def _span(self, window: Window, step_tokens: int) -> int:
        """From the begin of the first block that is seen to the end of a step."""
        return window.size + self.block_tokens + step_tokens - 2
