"""A step's chunks as flat arrays: one row per token, whatever sequence it belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError
from antiphon.types import PageId, TokenId

from .attention import BLOCK_ROWS
from .kv_memory import KvLayout

IntArray = npt.NDArray[np.int64]


class PageTable:
    """The pages of one sequence, in order of position. Grows in place.

    An entry that is empty (`NO_PAGE`) is read by nobody.
    """

    def __init__(self) -> None:
        self._pages = np.empty(16, np.int64)
        self._length = 0

    @property
    def pages(self) -> IntArray:
        """The table; a view that is valid until the next `extend`."""
        return self._pages[: self._length]

    def extend(self, start: int, pages: Sequence[PageId]) -> None:
        """Entries from `start` on become `pages`. Raises `BugError` if that leaves a hole."""
        if start > self._length:
            raise BugError(f"a page table of {self._length} entries can't go on at {start}")
        length = start + len(pages)
        if length > len(self._pages):
            grown = np.empty(2 * length, np.int64)
            grown[:start] = self._pages[:start]
            self._pages = grown
        self._pages[start:length] = pages
        self._length = length


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Neighbouring tokens of one sequence at positions `start …`, and the table that covers them.

    `sampled`: the logits of the last token are wanted.
    """

    tokens: Sequence[TokenId]
    start: int
    table: PageTable
    sampled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one forward pass computes. All arrays are int64.

    tokens, positions [rows]. places [rows, pages of an entry]: the first element of each row's slot
    in KV memory, less the layer and head. tables [pages of an entry, m]: page tables one after
    another; blocks [b, 4]: see `attention.attend`. sampled [s]: rows whose logits are wanted.
    """

    tokens: IntArray
    positions: IntArray
    places: IntArray
    tables: IntArray
    blocks: IntArray
    sampled: IntArray

    @classmethod
    def of(cls, runs: Sequence[Run], layout: KvLayout) -> Self:
        """Lay the runs out one after another. Raises `BugError` if a table is too short."""
        written, slots, positions, tables = [], [], [], []
        blocks, sampled = [], []
        row = table_at = 0
        together = layout.entry_pages
        for run in runs:
            count, pages = len(run.tokens), run.table.pages
            entries, end = len(pages) // together, run.start + count
            if count == 0 or end > entries * layout.page_tokens:
                raise BugError(
                    f"{count} tokens from position {run.start} on do not fit into a page table "
                    f"of {entries} entries of {layout.page_tokens} tokens"
                )
            span = np.arange(run.start, end)
            entry, slot = np.divmod(span, layout.page_tokens)
            pages = pages[: entries * together]
            positions.append(span)
            slots.append(slot)
            written.append(pages[entry] if together == 1 else pages.reshape(-1, together)[entry])
            tables.append(pages)
            blocks += [
                (row + first, min(BLOCK_ROWS, count - first), run.start + first, table_at)
                for first in range(0, count, BLOCK_ROWS)
            ]
            row, table_at = row + count, table_at + entries
            if run.sampled:
                sampled.append(row - 1)
        pages_of_rows = np.concatenate(written).reshape(row, together)
        if pages_of_rows.min() < 0:
            raise BugError("a page table is empty where a chunk is to be written")
        slots_of_rows = np.concatenate(slots)[:, None]
        return cls(
            tokens=np.concatenate([np.asarray(run.tokens, np.int64) for run in runs]),
            positions=np.concatenate(positions),
            places=pages_of_rows * layout.page_stride + slots_of_rows * layout.head_width,
            tables=_readable(np.concatenate(tables).reshape(table_at, together)),
            blocks=np.array(blocks, np.int64),
            sampled=np.array(sampled, np.int64),
        )


def _readable(entries: IntArray) -> IntArray:
    """Tables as the kernels take them, [pages of an entry, entries].

    They read what lies where an entry is empty, and let no number depend on it: here page 0.
    """
    return np.maximum(np.ascontiguousarray(entries.T), 0)
