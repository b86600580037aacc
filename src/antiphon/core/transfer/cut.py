"""How the pages of one pull are cut into slices: what is asked for, and comes, at once.

               rows 0 … 7     8 … 15     16 … 20       rows of the pull's table, one a page
    part 0     slice 0        1          2             layers 0 … 9 of each page
    part 1     slice 3        4          5             layers 10 … 19

Slices are numbered in the order in which they are wanted: all pages' first part comes first, so
that a step may begin with the first layers while later ones are on their way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.types import Seconds

LEAST_SLICE_BYTES = 256 << 10
"""Smaller ones cost more in calls than they gain in spreading."""
MOST_SLICE_BYTES = 4 << 20
MOST_ROWS = 512
"""Pages of one slice."""
SLICE_S: Seconds = 0.005
"""So long one slice takes on a path of known speed: what is lost with it is asked for again."""
SLICES_A_STREAM = 2
"""So many a stream at least, where there is enough: else the slowest stream decides."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`rows` pages in groups of `group_rows`; of each page the bytes of `parts`, (start, end)."""

    rows: int
    group_rows: int
    parts: tuple[tuple[int, int], ...]

    @property
    def groups(self) -> int:
        """How many groups of rows."""
        return -(-self.rows // self.group_rows)

    @property
    def slices(self) -> int:
        """How many slices."""
        return self.groups * len(self.parts)

    def rows_of(self, group: int) -> tuple[int, int]:
        """The first row of a group, and the one after its last."""
        first = group * self.group_rows
        return first, min(first + self.group_rows, self.rows)

    def bytes_of(self, group: int, part: int) -> int:
        """How much one slice is."""
        first, end = self.rows_of(group)
        start, stop = self.parts[part]
        return (end - first) * (stop - start)

    @classmethod
    def of(cls, rows: int, parts: Sequence[tuple[int, int]], size: int) -> "Cut":
        """Groups whose slices have about `size` bytes: whole pages, so one page at least."""
        widest = max(end - start for start, end in parts)
        return cls(rows, min(MOST_ROWS, max(1, size // widest)), tuple(parts))


def slice_bytes(total: int, streams: int, bytes_per_s: float | None) -> int:
    """How large the slices of a pull of `total` bytes over `streams` streams should be.

    `bytes_per_s` is the speed of one stream, if known.
    """
    size = total // max(1, streams * SLICES_A_STREAM)
    if bytes_per_s is not None:
        size = min(size, int(bytes_per_s * SLICE_S))
    return min(max(size, LEAST_SLICE_BYTES), MOST_SLICE_BYTES)
