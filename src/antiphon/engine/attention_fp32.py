"""Attention over float32 pages: products and softmax in float32.

Every sum is a chain of fused multiply-adds in the order of the keys or of a head's elements.
"""

import numpy as np
from numba import njit

from . import lanes as simd
from .attention_block import (
    BLOCK_ROWS,
    TILE,
    first_seen,
    first_tile,
    give_outputs,
    locate,
    rows_on,
    unit_of,
)
from .attention_tile import TALLEST, WIDTHS, prefetch, score_tile, transpose, value_tile
from .kernel_cache import kernel
from .lanes import LANES

_MINUS_INFINITY = np.float32(-np.inf)
_ZERO = np.float32(0.0)


def scratch_floats(geometry):
    """Size of the `scratch` array of one thread."""
    queries = BLOCK_ROWS * (geometry.heads // geometry.kv_heads)
    tile = TILE * geometry.head_width
    return tile + queries * (2 * geometry.head_width + TILE + LANES + 2)


@kernel
def attend(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share):
    """As `attention.attend`, for float32 memory."""
    heads, kv_heads, width = geometry.heads, geometry.kv_heads, geometry.head_width
    group = heads // kv_heads
    head_stride = geometry.page_tokens * width
    values_at = kv_heads * head_stride
    layer_at = layer * 2 * values_at
    most = BLOCK_ROWS * group
    keys, queries = simd.pointer(scratch, 0), simd.pointer(scratch, TILE * width)
    singles = (TILE + 2 * most) * width
    gathered, weights = (
        simd.pointer(scratch, singles - most * width),
        simd.pointer(scratch, singles),
    )
    sums = simd.pointer(scratch, singles + most * TILE)
    peaks = simd.pointer(scratch, singles + most * (TILE + LANES))
    fades = simd.pointer(scratch, singles + most * (TILE + LANES + 1))
    pages, table_at = simd.pointer(memory, 0), simd.pointer(tables, 0)
    rows_in, rows_out = simd.pointer(qkv, 0), simd.pointer(output, 0)
    one, key_rows = np.ones(1, np.float32), np.arange(width) * TILE
    unfaded, key_row = simd.pointer(one, 0), simd.pointer(key_rows, 0)
    places = np.empty(2 * TILE, np.int64)
    key_at, ahead = simd.pointer(places, 0), simd.pointer(places, TILE)
    scale = np.float32(geometry.scale)
    for unit in range(share[0], len(blocks) * kv_heads, share[1]):
        kv_head, block = unit_of(unit, len(blocks))
        first_row, rows, position, table = blocks[block]
        head_at = layer_at + kv_head * head_stride
        column = kv_head * group * width
        end = position + rows
        count = rows * group
        _gather_nothing(count, width, peaks, sums, gathered)
        _take_queries(rows_in, first_row * qkv.shape[1] + column, qkv.shape[1], rows, group * width,
                      scale, queries)  # fmt: skip
        begin = first_tile(position, window)
        locate(ahead, table_at, table, geometry, head_at, begin, end)
        for tile in range(begin, end, TILE):
            key_at, ahead = ahead, key_at
            if tile + TILE < end:
                locate(ahead, table_at, table, geometry, head_at, tile + TILE, end)
            _transpose_keys(pages, key_at, ahead, values_at, min(TILE, end - tile), width, keys)
            seeing, blind = rows_on(tile, position, rows, window)
            first, last = seeing * group, blind * group
            strips = (min(TILE, end - tile) + LANES - 1) // LANES
            for query in range(first, last, TALLEST):
                height = min(TALLEST, last - query)
                _score(height, queries, query * width, width, keys, key_row, strips, weights, query)
            for query in range(first, last):
                at = position + query // group
                low, seen = max(first_seen(at, window) - tile, 0), min(TILE, at + 1 - tile)
                fades[query] = _soften(weights, query * TILE, low, seen, peaks, sums, query)
            for query in range(first, last, TALLEST):
                _gather_some(query, min(TALLEST, last - query), group, position - tile, window,
                             weights, pages, key_at, values_at, gathered, width, fades,
                             unfaded)  # fmt: skip
        give_outputs(gathered, sums, rows, group, width, rows_out,
                     first_row * output.shape[1] + column, output.shape[1])  # fmt: skip
    simd.held(one)
    simd.held(key_rows)
    simd.held(places)


@njit(inline="always")
def _gather_nothing(count, width, peaks, sums, gathered):
    for query in range(count):
        peaks[query] = _MINUS_INFINITY
        simd.store(sums, query * LANES, simd.splat(_ZERO))
        for at in range(0, width, LANES):
            simd.store(gathered, query * width + at, simd.splat(_ZERO))


@njit(inline="always")
def _transpose_keys(pages, key_at, ahead, values_at, here, width, keys):
    for strip in range(0, here, LANES):
        for at in range(0, width, LANES):
            transpose(pages, key_at, strip, at, keys, at * TILE + strip, TILE)
            # What comes next is on its way while this is computed.
            for key in range(strip, strip + LANES):
                prefetch(pages, ahead[key] + at)
                prefetch(pages, key_at[key] + values_at + at)


@njit(inline="always")
def _take_queries(qkv, at, stride, rows, span, scale, queries):
    """Copy the block's queries of one key-value head, times `scale`, one after another."""
    factor = simd.splat(scale)
    for row in range(rows):
        for column in range(0, span, LANES):
            query = simd.load(qkv, at + row * stride + column)
            simd.store(queries, row * span + column, simd.mul(query, factor))


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
def _soften(weights, at, low, count, peaks, sums, query):
    """Turn a query's scores into softmax weights in place, and bring its peak and sums up to date.

    Scores before `low` and from `count` on count for nothing. Returns the factor for what was
    gathered under the former peak.
    """
    highest = simd.splat(peaks[query])
    for strip in range(0, count, LANES):
        scores = simd.load(weights, at + strip)
        scores = simd.keep_first(scores, count - strip, simd.splat(_MINUS_INFINITY))
        if low > strip:
            scores = simd.keep_first(simd.splat(_MINUS_INFINITY), low - strip, scores)
        highest = simd.at_least(scores, highest)
    peak = simd.peak(highest)
    fade = simd.exp(simd.splat(np.float32(peaks[query] - peak)))
    lane_sums = simd.mul(simd.load(sums, query * LANES), fade)
    for strip in range(0, count, LANES):
        grown = simd.exp(simd.sub(simd.load(weights, at + strip), simd.splat(peak)))
        grown = simd.keep_first(grown, count - strip, simd.splat(_ZERO))
        if low > strip:
            grown = simd.keep_first(simd.splat(_ZERO), low - strip, grown)
        simd.store(weights, at + strip, grown)
        lane_sums = simd.add(lane_sums, grown)
    peaks[query] = peak
    simd.store(sums, query * LANES, lane_sums)
    return simd.first(fade)


@njit(inline="always")
def _gather_some(query, height, group, before, window, weights, pages, key_at, values_at, gathered,
                 width, fades, unfaded):  # fmt: skip
    """Add a tile's values to what `height` queries gathered.

    `before`: positions from the tile's first key to the block's first row.
    """
    if first_seen(before + (query + height - 1) // group, window) > 0:
        # The tile begins outside of a row's window: each row has keys of its own.
        for other in range(query, query + height):
            at = before + other // group
            low, seen = first_seen(at, window), min(TILE, at + 1)
            _gather(1, weights, other * TILE + low, pages, key_at, low, values_at, seen - low,
                    gathered, other * width, width, fades, other)  # fmt: skip
        return
    seen = min(TILE, before + query // group + 1)
    _gather(height, weights, query * TILE, pages, key_at, 0, values_at, seen, gathered,
            query * width, width, fades, query)  # fmt: skip
    # Later rows of the tile see more keys.
    for other in range(query + 1, query + height):
        more = min(TILE, before + other // group + 1) - seen
        if more:
            _gather(1, weights, other * TILE + seen, pages, key_at, seen, values_at, more,
                    gathered, other * width, width, unfaded, 0)  # fmt: skip


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
