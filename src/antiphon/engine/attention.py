"""Causal attention over paged KV memory on the CPU: one kernel for prefill and decode.

Keys and values are read through the page table, whatever the page size. A query row walks its keys
in tiles of `TILE` positions counted from position 0, with an online softmax (Milakov & Gimelshein
2018, as in FlashAttention, Dao et al. 2022): which additions happen, and in which order, follows
from the row's position alone, so its result is bitwise the same alone or batched, in any chunking,
as prefill or as decode, at any page size. The work is cut into blocks of neighbouring rows times
key-value heads. A block transposes a tile of keys once for all its queries (rows times query heads
of the group), which then share the loads of keys and values in register tiles.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from . import lanes as simd
from .attention_tile import TALLEST, WIDTHS, prefetch, score_tile, transpose, value_tile
from .kernel_cache import kernel
from .lanes import LANES

TILE = 64
"""Keys between two updates of the running softmax."""
BLOCK_ROWS = 16
"""Most query rows of one unit of work."""

_MINUS_INFINITY = np.float32(-np.inf)
_ZERO = np.float32(0.0)


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


def scratch_floats(geometry: Geometry) -> int:
    """Size of the `scratch` array of one thread."""
    queries = BLOCK_ROWS * (geometry.heads // geometry.kv_heads)
    tile = TILE * geometry.head_width
    return tile + queries * (2 * geometry.head_width + TILE + LANES + 2)


@kernel
def attend(qkv, output, memory, tables, blocks, geometry, layer, scratch, share):
    """Fill `output` for one thread's share of the blocks and key-value heads.

    `qkv` float32 [rows, (heads + 2·kv_heads)·head_width]: each row begins with its rotated queries.
    `output` float32 [≥ rows, heads·head_width]. `memory` float32 or bfloat16 (as uint16) [n]:
    pages, each [layers, 2 (keys, values), kv_heads, page_tokens, head_width]. `tables` int64 [m]:
    page tables one after another. `blocks` int64 [b, 4]: first row, rows (at most `BLOCK_ROWS`),
    position of the first row, start of its page table in `tables`. `geometry`: `Geometry`;
    `scratch` float32 [scratch_floats]; `share` = (this thread, threads).
    """
    heads, kv_heads, head_dim, width, page_tokens, page_stride = geometry
    group = heads // kv_heads
    head_stride = page_tokens * width
    values_at = kv_heads * head_stride
    most = BLOCK_ROWS * group
    keys, rest = scratch[: TILE * width], scratch[TILE * width :]
    queries, rest = rest[: most * width], rest[most * width :]
    gathered, rest = rest[: most * width], rest[most * width :]
    weights, rest = rest[: most * TILE], rest[most * TILE :]
    sums, rest = rest[: most * LANES], rest[most * LANES :]
    peaks, fades = rest[:most], rest[most : 2 * most]
    one = np.ones(1, np.float32)
    key_row = np.arange(width) * TILE
    key_at, ahead = np.empty(TILE, np.int64), np.empty(TILE, np.int64)
    scale = np.float32(1.0 / np.sqrt(head_dim))
    for unit in range(share[0], len(blocks) * kv_heads, share[1]):
        kv_head, block = unit // len(blocks), unit % len(blocks)
        first_row, rows, position, table = blocks[block]
        head_at = layer * 2 * values_at + kv_head * head_stride
        end = position + rows
        count = rows * group
        peaks[:] = _MINUS_INFINITY
        sums[:] = _ZERO
        gathered[: count * width] = _ZERO
        _take_queries(qkv, first_row, rows, kv_head * group * width, group * width, scale, queries)
        _locate(ahead, tables[table:], page_tokens, page_stride, head_at, width, 0, end)
        for tile in range(0, end, TILE):
            key_at, ahead = ahead, key_at
            _locate(ahead, tables[table:], page_tokens, page_stride, head_at, width,
                    min(tile + TILE, end - 1), end)  # fmt: skip
            for strip in range(0, min(TILE, end - tile), LANES):
                for column in range(0, width, LANES):
                    into = column * TILE + strip
                    transpose(memory, key_at, strip, column, keys, into, TILE)
                    # What comes next is on its way while this is computed.
                    for key in range(strip, strip + LANES):
                        prefetch(memory, ahead[key] + column)
                        prefetch(memory, key_at[key] + values_at + column)
            first = max(tile - position, 0) * group
            strips = (min(TILE, end - tile) + LANES - 1) // LANES
            for query in range(first, count, TALLEST):
                height = min(TALLEST, count - query)
                _score(height, queries, query * width, width, keys, key_row, strips, weights, query)
            for query in range(first, count):
                seen = min(TILE, position + query // group + 1 - tile)
                fades[query] = _soften(weights, query * TILE, seen, peaks, sums, query)
            for query in range(first, count, TALLEST):
                height = min(TALLEST, count - query)
                seen = min(TILE, position + query // group + 1 - tile)
                _gather(height, weights, query * TILE, memory, key_at, 0, values_at, seen, gathered,
                        query * width, width, fades, query)  # fmt: skip
                # Later rows of the tile see more keys.
                for other in range(query + 1, query + height):
                    more = min(TILE, position + other // group + 1 - tile) - seen
                    if more:
                        _gather(1, weights, other * TILE + seen, memory, key_at, seen, values_at,
                                more, gathered, other * width, width, one, 0)  # fmt: skip
        _give_outputs(
            gathered, sums, first_row, rows, kv_head * group * width, group, width, output
        )


@njit(inline="always")
def _take_queries(qkv, first_row, rows, column, span, scale, queries):
    """Copy the block's queries of one key-value head, times `scale`, one after another."""
    flat, factor = qkv.reshape(-1), simd.splat(scale)
    for row in range(rows):
        begin = (first_row + row) * qkv.shape[1] + column
        for at in range(0, span, LANES):
            simd.store(queries, row * span + at, simd.mul(simd.load(flat, begin + at), factor))


@njit(inline="always")
def _locate(key_at, table, page_tokens, page_stride, head_at, width, start, end):
    """Where the keys from `start` on lie; from position `end` on, where the last one does."""
    entry, slot, key = start // page_tokens, start % page_tokens, 0
    seen = min(TILE, end - start)
    while key < seen:
        begin = table[entry] * page_stride + head_at + slot * width
        stop = min(key + page_tokens - slot, seen)
        for number in range(stop - key):
            key_at[key + number] = begin + number * width
        entry, slot, key = entry + 1, 0, stop
    key_at[seen:] = key_at[seen - 1]


@njit(inline="always")
def _score(height, queries, queries_at, width, keys, key_row, strips, weights, query):
    """Scores of `height` queries with the tile's first `strips` · 16 keys."""
    wide = WIDTHS[height - 1]
    strip = 0
    while strip < strips:
        vectors = wide if strip + wide <= strips else 1
        score_tile(height, vectors, queries, queries_at, width, keys, key_row, 0, strip * LANES,
                   width, weights, query * TILE + strip * LANES, TILE, weights, 0)  # fmt: skip
        strip += vectors


@njit(inline="always")
def _soften(weights, at, count, peaks, sums, query):
    """Turn a query's scores into softmax weights in place, and bring its peak and sums up to date.

    Scores beyond `count` count for nothing. Returns the factor for what was gathered under the
    former peak.
    """
    highest = simd.splat(peaks[query])
    for strip in range(0, count, LANES):
        scores = simd.load(weights, at + strip)
        scores = simd.keep_first(scores, count - strip, simd.splat(_MINUS_INFINITY))
        highest = simd.at_least(scores, highest)
    peak = simd.peak(highest)
    fade = simd.exp(simd.splat(np.float32(peaks[query] - peak)))
    lane_sums = simd.mul(simd.load(sums, query * LANES), fade)
    for strip in range(0, count, LANES):
        grown = simd.exp(simd.sub(simd.load(weights, at + strip), simd.splat(peak)))
        grown = simd.keep_first(grown, count - strip, simd.splat(_ZERO))
        simd.store(weights, at + strip, grown)
        lane_sums = simd.add(lane_sums, grown)
    peaks[query] = peak
    simd.store(sums, query * LANES, lane_sums)
    return simd.first(fade)


@njit(inline="always")
def _gather(height, weights, at, memory, key_at, first, column, count, gathered, into, width, fades,
            fade_at):  # fmt: skip
    """gathered ← gathered · fade + Σ weight · value of `height` queries, key after key."""
    wide = WIDTHS[height - 1]
    vectors = width // LANES
    vector = 0
    while vector < vectors:
        step = wide if vector + wide <= vectors else 1
        value_tile(height, step, weights, at, TILE, memory, key_at, first, column + vector * LANES,
                   count, gathered, into + vector * LANES, width, fades, fade_at)  # fmt: skip
        vector += step


@njit(inline="always")
def _give_outputs(gathered, sums, first_row, rows, column, group, width, output):
    """output ← gathered / sum of weights."""
    flat = output.reshape(-1)
    for query in range(rows * group):
        whole = simd.splat(simd.total(simd.load(sums, query * LANES)))
        row, head = first_row + query // group, query % group
        begin = row * output.shape[1] + column + head * width
        for at in range(0, width, LANES):
            value = simd.load(gathered, query * width + at)
            simd.store(flat, begin + at, simd.div(value, whole))
