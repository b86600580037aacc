"""One pull over TCP: its table, and what has come of each page. Arrays: no object a page."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from antiphon.core.transfer import Cut, Slice
from antiphon.errors import BugError
from antiphon.store.transfer.mapping import MISS_OF, Miss
from antiphon.store.transfer.page_copy import GOOD, ROW_WORDS
from antiphon.store.transfer.region import OwnedRegion
from antiphon.types import Seconds

from .slice_kernels import areas_of, blame_rows, prove_rows
from .vectored_io import Areas, until

Table = npt.NDArray[np.uint64]
"""[pages, 4]: source page, generation, checksum, target page."""

OnPart = Callable[[int], None]
"""Told how many leading parts are here of all pages; the last only when all pages are proven."""


class Reading:
    """The pages of `table`, which go into `own`. Slices of it are different streams' business.

    `begun`: streams were told of it. `stopped` (`vectored_io.until`) says when nobody wants it any
    more: after `timeout_s`, or before; `ended` is set when nothing is written to the targets any
    more.
    """

    def __init__(
        self,
        table: Table,
        own: OwnedRegion,
        cut: Cut,
        on_part: OnPart | None = None,
        *,
        timeout_s: Seconds | None = None,
    ) -> None:
        if table.ndim != 2 or table.shape[1] != ROW_WORDS or table.dtype != np.uint64:
            raise BugError(f"a table of pages is uint64 [pages, {ROW_WORDS}], not {table.shape}")
        self.cut = cut
        self.ended = threading.Event()
        self.begun = True
        self.stopped = until(timeout_s)
        self.verdicts = np.zeros(len(table), np.uint8)  # GOOD
        self.late = np.zeros(len(table), np.bool_)
        self._rows = np.ascontiguousarray(table[:, :2])
        self._checksums = np.ascontiguousarray(table[:, 2])
        self._targets = np.ascontiguousarray(table[:, 3])
        self._own = own
        self.own_pages: tuple[int, int] = own.content.ctypes.data, own.header.page_bytes
        self._on_part = on_part
        self._telling = threading.Lock()
        self._told = 0

    @property
    def proves_at_once(self) -> bool:
        """Whether slices are whole pages, whose checksums are compared as they come."""
        return len(self.cut.parts) == 1

    def rows_of(self, one: Slice) -> Table:
        """What to ask for: [rows, 2] of page and generation."""
        first, end = self.cut.rows_of(one.group)
        return self._rows[first:end]

    def targets_of(self, one: Slice) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Where its pages go, and their checksums."""
        first, end = self.cut.rows_of(one.group)
        return self._targets[first:end], self._checksums[first:end]

    def areas(self, one: Slice, verdicts: npt.NDArray[np.uint8]) -> Areas:
        """Where the bytes go of those pages of a slice whose verdict is GOOD."""
        first, end = self.cut.rows_of(one.group)
        start, stop = self.cut.parts[one.part]
        areas = np.empty((end - first, 2), np.uint64)
        targets = self._targets[first:end]
        count = areas_of(*self.own_pages, start, stop, targets, verdicts, areas)
        return areas[:count]

    def blame(self, one: Slice, verdicts: npt.NDArray[np.uint8]) -> None:
        """What the owner said of a slice's pages. Parts of one page may come at the same time."""
        first, end = self.cut.rows_of(one.group)
        blame_rows(verdicts, self.verdicts[first:end])

    def prove_slice(self, one: Slice, verdicts: npt.NDArray[np.uint8]) -> None:
        """Compare the checksums of those pages of a slice that are GOOD; `verdicts` change."""
        targets, checksums = self.targets_of(one)
        prove_rows(*self.own_pages, targets, checksums, verdicts)

    def prove(self, group: int) -> None:
        """All of these pages are here: compare their checksums, if that was not done at once."""
        if self.proves_at_once:
            return
        first, end = self.cut.rows_of(group)
        rows = slice(first, end)
        prove_rows(
            *self.own_pages,
            self._targets[rows],
            self._checksums[rows],
            self.verdicts[rows],
        )

    def tell(self, parts: int) -> None:
        """So many parts are here: say so, unless a page is known not to be what it should be."""
        with self._telling:
            if self._on_part and parts > self._told and not self.verdicts.any():
                self._told = parts
                self._on_part(parts)

    def finish(self, parts: int) -> None:
        """Say what is still to be said; from now on nothing is."""
        self.tell(parts)
        with self._telling:
            self._on_part = None

    def end(self, missing: Sequence[int]) -> None:
        """Nothing more comes; of these groups a part never did."""
        for group in missing:
            first, end = self.cut.rows_of(group)
            self.late[first:end] = True
        self.ended.set()

    def good(self) -> npt.NDArray[np.bool_]:
        """Which targets now hold what was offered; after `ended`."""
        if not self.late.any():
            return self.verdicts == GOOD
        return (self.verdicts == GOOD) & ~self.late

    def missed(self) -> Counter[Miss]:
        """Why the others do not."""
        if not self.verdicts.any() and not self.late.any():
            return Counter()
        counts = Counter({Miss.UNREACHED: int((self.late & (self.verdicts == GOOD)).sum())})
        for verdict, miss in MISS_OF.items():
            counts[miss] += int((self.verdicts == verdict).sum())
        return +counts
