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
    """The pages of one sequence, in order of position. Grows in place."""

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

    tokens, positions, places [rows]: `places` is the first element of each row's slot in KV memory,
    less the layer and head. tables [m] and blocks [b, 4]: see `attention.attend`. sampled [s]: rows
    whose logits are wanted.
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
        places, positions, tables, blocks, sampled = [], [], [], [], []
        row = table_at = 0
        for run in runs:
            count, pages = len(run.tokens), run.table.pages
            end = run.start + count
            if count == 0 or end > len(pages) * layout.page_tokens:
                raise BugError(
                    f"{count} tokens from position {run.start} on do not fit into a page table "
                    f"of {len(pages)} pages of {layout.page_tokens} tokens"
                )
            span = np.arange(run.start, end)
            entry, slot = np.divmod(span, layout.page_tokens)
            positions.append(span)
            places.append(pages[entry] * layout.page_stride + slot * layout.head_width)
            tables.append(pages)
            blocks += [
                (row + first, min(BLOCK_ROWS, count - first), run.start + first, table_at)
                for first in range(0, count, BLOCK_ROWS)
            ]
            row, table_at = row + count, table_at + len(pages)
            if run.sampled:
                sampled.append(row - 1)
        return cls(
            tokens=np.concatenate([np.asarray(run.tokens, np.int64) for run in runs]),
            positions=np.concatenate(positions),
            places=np.concatenate(places),
            tables=np.concatenate(tables),
            blocks=np.array(blocks, np.int64),
            sampled=np.array(sampled, np.int64),
        )
