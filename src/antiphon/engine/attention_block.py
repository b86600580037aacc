"""What both attention kernels share: sizes, units of work, and where keys lie."""

from typing import NamedTuple

from numba import njit

from . import lanes as simd
from .lanes import LANES

TILE = 64
"""Keys between two updates of the running softmax."""
BLOCK_ROWS = 32
"""Most query rows of one unit of work."""


class Geometry(NamedTuple):
    """Sizes that a kernel needs; numba takes a named tuple apart at compile time."""

    heads: int
    kv_heads: int
    head_dim: int
    head_width: int
    """Elements of a head with its zeros: `head_dim` rounded up to whole vectors."""
    page_tokens: int
    page_stride: int
    """Elements from one page to the next."""
    scale: float
    """What scores are multiplied by."""


@njit(inline="always")
def first_seen(position, window):
    """The first position that a row at `position` sees; `window` 0: all."""
    return max(position + 1 - window, 0) if window else 0


@njit(inline="always")
def first_tile(position, window):
    """Where the first tile begins of which a row at `position` sees anything."""
    return first_seen(position, window) // TILE * TILE


@njit(inline="always")
def rows_on(tile, position, rows, window):
    """Of a block's rows from `position` on, those that see a tile: first, one past the last.

    A row sees one run of positions, later rows later ones; so who sees a tile stands together.
    """
    first = max(tile - position, 0)
    if window == 0:
        return first, rows
    return first, min(rows, tile + TILE - 1 + window - position)


@njit(inline="always")
def unit_of(unit, blocks):
    """A unit of work's key-value head and block.

    Later blocks of a sequence see more keys. Every other head counts them backwards, so that
    threads that take turns get about equal shares.
    """
    kv_head, block = unit // blocks, unit % blocks
    return kv_head, block if kv_head % 2 == 0 else blocks - 1 - block


@njit(inline="always")
def locate(key_at, tables, table, geometry, head_at, start, end):
    """Where the keys from `start` on lie; from position `end` on, where the last one does.

    Fills `TILE` entries of `key_at`. `head_at`: the head's first key in a page; `table`: where the
    sequence's page table begins in `tables`.
    """
    page_tokens, width = geometry.page_tokens, geometry.head_width
    entry, slot, key = table + start // page_tokens, start % page_tokens, 0
    seen = min(TILE, end - start)
    while key < seen:
        begin = tables[entry] * geometry.page_stride + head_at + slot * width
        stop = min(key + page_tokens - slot, seen)
        for number in range(stop - key):
            key_at[key + number] = begin + number * width
        entry, slot, key = entry + 1, 0, stop
    last = key_at[seen - 1]
    for number in range(seen, TILE):
        key_at[number] = last


@njit(inline="always")
def give_outputs(gathered, sums, rows, group, width, output, at, stride):
    """output ← gathered / sum of weights: the block's first row at `at`, its head first."""
    for query in range(rows * group):
        whole = simd.splat(simd.total(simd.load(sums, query * LANES)))
        begin = at + query // group * stride + query % group * width
        for column in range(0, width, LANES):
            value = simd.load(gathered, query * width + column)
            simd.store(output, begin + column, simd.div(value, whole))
