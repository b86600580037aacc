"""Attention over bfloat16 pages in whole numbers: exact products, softmax in float32.

Each query, key and value (a head's row of one token) is rounded to integers with a scale of its
own, which follows from its content alone. Scores are exact int32 sums. The softmax weights of a
tile, each times its value's scale, are rounded relative to the largest that they could be there;
their products with the values are exact again, and the running softmax joins the tiles in float32.
What is exact can be added in any order, what is rounded depends on the row's position and on the
keys and values up to there: nothing follows from what else is computed.

A bfloat16 has 8 significant bits. Keys and values keep 14 below their row's largest, queries 12,
weights 13; together no more than an int32 holds for any sum.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from . import int16_lanes as halves
from . import lanes as simd
from .attention_block import (
    BLOCK_ROWS,
    TILE,
    first_tile,
    give_outputs,
    locate,
    rows_on,
    unit_of,
)
from .attention_tile import TALLEST, WIDTHS, prefetch
from .int16_tile import row_peaks, score_tile, transpose_pairs, value_tile
from .kernel_cache import kernel
from .lanes import LANES

_SOME = 2 * TALLEST
"""Queries whose weights are at hand at a time, in the first-level cache; at most `LANES`."""

_QUERY_LIMIT = 2**11 - 1
_KEY_LIMIT = 2**13 - 1
"""For heads of up to 128; wider ones get less, so that a score fits."""
_VALUE_LIMIT = 2**13 - 1
_WEIGHT_LIMIT = 2**12 - 1
"""_WEIGHT_LIMIT · _VALUE_LIMIT · TILE < 2³¹."""
_LARGEST_SUM = 2**31 - 1

_MINUS_INFINITY = np.float32(-np.inf)
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_SMALLEST = np.float32(1e-30)
"""Rows with no larger element count as zeros."""
_LOG2_E = np.float32(1.44269504)


class _Room(NamedTuple):
    """A thread's scratch; pointers to float32, some of them for their bits."""

    keys: int
    """[head_width/2, TILE] pairs: lanes are keys."""
    values: int
    """[TILE/2, head_width] pairs of neighbouring keys: lanes are columns."""
    weights: int
    """[_SOME, TILE] scores, then in the first half of each row weights as int16."""
    queries: int
    """[queries, head_width] int16."""
    gathered: int
    """[queries, head_width]."""
    sums: int
    """[queries, LANES]."""
    peaks: int
    """[queries + LANES] largest score so far; then, as long, the queries' scales."""
    query_scales: int
    key_scales: int
    """[TILE]."""
    value_scales: int
    value_factors: int
    tops: int
    """[LANES], of the queries at hand, as the others: the largest score of the tile."""
    reaches: int
    """Largest value scale that the query sees; then what makes weights integers."""
    fades: int
    """Factor for what was gathered before."""
    gains: int
    """Factor for the tile's weights."""
    scales: int
    """Factor for the tile's sums of integers."""


def scratch_floats(geometry):
    """Size of the `scratch` array of one thread."""
    queries = BLOCK_ROWS * (geometry.heads // geometry.kv_heads)
    by_query = geometry.head_width * 3 // 2 + LANES + 2
    return TILE * (geometry.head_width + LANES + 3) + queries * by_query + 7 * LANES


@njit(inline="always")
def _room(scratch, width, queries):
    tiles = TILE * width
    rows = tiles + TILE * (LANES + 3)
    singles = rows + queries * (width * 3 // 2 + LANES)
    few = singles + 2 * (queries + LANES)
    return _Room(
        keys=simd.pointer(scratch, 0),
        values=simd.pointer(scratch, tiles // 2),
        weights=simd.pointer(scratch, tiles),
        key_scales=simd.pointer(scratch, tiles + TILE * LANES),
        value_scales=simd.pointer(scratch, tiles + TILE * (LANES + 1)),
        value_factors=simd.pointer(scratch, tiles + TILE * (LANES + 2)),
        queries=simd.pointer(scratch, rows),
        gathered=simd.pointer(scratch, rows + queries * width // 2),
        sums=simd.pointer(scratch, rows + queries * width * 3 // 2),
        peaks=simd.pointer(scratch, singles),
        query_scales=simd.pointer(scratch, singles + queries + LANES),
        tops=simd.pointer(scratch, few),
        reaches=simd.pointer(scratch, few + LANES),
        fades=simd.pointer(scratch, few + 2 * LANES),
        gains=simd.pointer(scratch, few + 3 * LANES),
        scales=simd.pointer(scratch, few + 4 * LANES),
    )


@kernel
def attend(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share):
    """As `attention.attend`, for bfloat16 memory."""
    heads, kv_heads, width = geometry.heads, geometry.kv_heads, geometry.head_width
    group = heads // kv_heads
    head_stride = geometry.page_tokens * width
    values_at = kv_heads * head_stride
    layer_at = layer * 2 * values_at
    room = _room(scratch, width, BLOCK_ROWS * group)
    pages, table_at = simd.pointer(memory, 0), simd.pointer(tables, 0)
    rows_in, rows_out = simd.pointer(qkv, 0), simd.pointer(output, 0)
    places = np.empty(2 * TILE, np.int64)
    key_at, ahead = simd.pointer(places, 0), simd.pointer(places, TILE)
    key_limit = np.float32(min(_KEY_LIMIT, _LARGEST_SUM // (_QUERY_LIMIT * width)))
    scale = np.float32(geometry.scale) * _LOG2_E
    units = len(blocks) * kv_heads
    fresh = True
    for unit in range(share[0], units, share[1]):
        kv_head, block = unit_of(unit, len(blocks))
        first_row, rows, position, table = blocks[block]
        head_at = layer_at + kv_head * head_stride
        column = kv_head * group * width
        end = position + rows
        _begin(rows_in, first_row * qkv.shape[1] + column, qkv.shape[1], rows, group, width, scale,
               room)  # fmt: skip
        begin = first_tile(position, window)
        if fresh:
            locate(ahead, table_at, table, geometry, head_at, begin, end)
            fresh = False
        for tile in range(begin, end, TILE):
            key_at, ahead = ahead, key_at
            # The next tile, maybe of the next unit, is on its way while this one is computed.
            if tile + TILE < end:
                locate(ahead, table_at, table, geometry, head_at, tile + TILE, end)
            elif unit + share[1] < units:
                head, other = unit_of(unit + share[1], len(blocks))
                _, more, start, its_table = blocks[other]
                locate(ahead, table_at, its_table, geometry, layer_at + head * head_stride,
                       first_tile(start, window), start + more)  # fmt: skip
            here = min(TILE, end - tile)
            _round_keys(pages, key_at, ahead, here, width, key_limit, room)
            _round_values(pages, key_at, ahead, values_at, here, width, room)
            first, last = rows_on(tile, position, rows, window)
            _attend_tile(first * group, last * group, position - tile, here, group, width, window,
                         room)  # fmt: skip
        give_outputs(room.gathered, room.sums, rows, group, width, rows_out,
                     first_row * output.shape[1] + column, output.shape[1])  # fmt: skip
    simd.held(places)


@njit(inline="always")
def _begin(qkv, at, stride, rows, group, width, scale, room):
    """Round the queries; nothing is gathered yet. The softmax will be in powers of two."""
    for query in range(rows * group):
        begin = at + query // group * stride + query % group * width
        peaks = simd.splat(_ZERO)
        for column in range(0, width, LANES):
            peaks = halves.larger(peaks, simd.load(qkv, begin + column))
            simd.store(room.gathered, query * width + column, simd.splat(_ZERO))
        peak = _not_tiny(halves.largest(peaks))
        factor = simd.splat(np.float32(_QUERY_LIMIT) / peak)
        for column in range(0, width, LANES):
            value = halves.rounded(simd.load(qkv, begin + column), factor)
            halves.store_halves(room.queries, query * width + column, value)
        room.query_scales[query] = peak * np.float32(1.0 / _QUERY_LIMIT) * scale
        room.peaks[query] = _MINUS_INFINITY
        simd.store(room.sums, query * LANES, simd.splat(_ZERO))


@njit(inline="always")
def _not_tiny(peak):
    """A NaN stays."""
    return _SMALLEST if peak < _SMALLEST else peak


@njit(inline="always")
def _round_keys(pages, key_at, ahead, here, width, limit, room):
    """Transpose and round a tile of keys, 16 at a time."""
    keys = room.keys
    for strip in range(0, here, LANES):
        for column in range(0, width, LANES):
            transpose_pairs(pages, key_at, strip, column, keys, column // 2 * TILE + strip, TILE)
            for key in range(strip, strip + LANES):
                prefetch(pages, ahead[key] + column)
        both = simd.splat(_ZERO)
        for pair in range(width // 2):
            both = halves.larger_halves(both, simd.load(keys, pair * TILE + strip))
        peaks = halves.larger(halves.lower(both), halves.upper(both))
        peaks = simd.at_least(peaks, simd.splat(_SMALLEST))
        simd.store(room.key_scales, strip, simd.mul(peaks, simd.splat(_ONE / limit)))
        factors = simd.div(simd.splat(limit), peaks)
        for pair in range(width // 2):
            words = simd.load(keys, pair * TILE + strip)
            low = halves.rounded(halves.lower(words), factors)
            high = halves.rounded(halves.upper(words), factors)
            simd.store(keys, pair * TILE + strip, halves.paired(low, high))


@njit(inline="always")
def _round_values(pages, key_at, ahead, values_at, here, width, room):
    """Round a tile of values and pair neighbouring keys, in steps of four keys."""
    limit = simd.splat(np.float32(_VALUE_LIMIT))
    for strip in range(0, here, LANES):
        peaks = row_peaks(pages, key_at, strip, values_at, width)
        peaks = simd.at_least(peaks, simd.splat(_SMALLEST))
        scales = simd.mul(peaks, simd.splat(np.float32(1.0 / _VALUE_LIMIT)))
        simd.store(room.value_scales, strip, scales)
        simd.store(room.value_factors, strip, simd.div(limit, peaks))
    for pair in range(_pairs(here)):
        first, second = key_at[2 * pair] + values_at, key_at[2 * pair + 1] + values_at
        factor = simd.splat(room.value_factors[2 * pair])
        other_factor = simd.splat(room.value_factors[2 * pair + 1])
        for column in range(0, width, LANES):
            low = halves.rounded(simd.load(pages, first + column), factor)
            high = halves.rounded(simd.load(pages, second + column), other_factor)
            simd.store(room.values, pair * width + column, halves.paired(low, high))
        for column in range(0, width, LANES):
            prefetch(pages, ahead[2 * pair] + values_at + column)
            prefetch(pages, ahead[2 * pair + 1] + values_at + column)


@njit(inline="always")
def _pairs(here):
    """An even number of pairs that covers `here` keys: what the register tiles take."""
    return (here + 3) // 4 * 2


@njit(inline="always")
def _attend_tile(first, last, before, here, group, width, window, room):
    """Bring the queries from `first` to before `last` up to date with the tile at hand.

    `before`: positions from the tile's first key to the block's first row.
    """
    half = width // 2
    whole = before >= TILE - 1 and _low(before + (last - 1) // group, window) == 0
    reach = _reach(room.value_scales, 0, TILE) if whole else _ZERO
    for base in range(first, last, _SOME):
        some = min(_SOME, last - base)
        for query in range(0, some, TALLEST):
            height = min(TALLEST, some - query)
            _score(height, query, (base + query) * half, half, (here + LANES - 1) // LANES, room)
        for query in range(some):
            at = before + (base + query) // group
            low = 0 if whole else _low(at, window)
            seen = TILE if whole else min(TILE, at + 1)
            room.tops[query] = _top(room.weights, query * TILE, low, seen)
            room.reaches[query] = reach if whole else _reach(room.value_scales, low, seen)
        _fade(base, some, room)
        for query in range(some):
            at = before + (base + query) // group
            low = 0 if whole else _low(at, window)
            seen = TILE if whole else min(TILE, at + 1)
            _soften(query, low, seen, base + query, room)
        for query in range(0, some, TALLEST):
            height = min(TALLEST, some - query)
            _gather(height, query, (base + query) * width, width, _pairs(here), room)


@njit(inline="always")
def _low(at, window):
    """The tile's first key that a row sees which is `at` positions behind the tile's begin."""
    return max(at + 1 - window, 0) if window else 0


@njit(inline="always")
def _score(height, query, queries_at, half, strips, room):
    """Scores of `height` queries with the tile's first `strips` · 16 keys, less their own scale."""
    wide = WIDTHS[height - 1]
    strip = 0
    while strip < strips:
        vectors = wide if strip + wide <= strips else 1
        score_tile(height, vectors, room.queries, queries_at, half, room.keys, strip * LANES, TILE,
                   half, room.weights, query * TILE + strip * LANES, TILE, room.key_scales,
                   strip * LANES, room.key_scales, 0)  # fmt: skip
        strip += vectors


@njit(inline="always")
def _reach(scales, low, count):
    """Largest of the first `count` from `low` on; a NaN among them counts as the largest."""
    peaks = simd.splat(_ZERO)
    for strip in range(0, count, LANES):
        found = simd.keep_first(simd.load(scales, strip), count - strip, simd.splat(_ZERO))
        if low > strip:
            found = simd.keep_first(simd.splat(_ZERO), low - strip, found)
        peaks = halves.larger(peaks, found)
    return halves.largest(peaks)


@njit(inline="always")
def _top(weights, at, low, count):
    cut = count < TILE or low > 0
    highest = simd.splat(_MINUS_INFINITY)
    for strip in range(0, count, LANES):
        scores = simd.load(weights, at + strip)
        if cut:
            scores = simd.keep_first(scores, count - strip, simd.splat(_MINUS_INFINITY))
            scores = simd.keep_first(simd.splat(_MINUS_INFINITY), low - strip, scores)
        highest = simd.at_least(scores, highest)
    return simd.peak(highest)


@njit(inline="always")
def _fade(base, some, room):
    """New peaks of the `some` queries at hand, and what follows from them; lanes are queries."""
    top = simd.mul(simd.load(room.tops, 0), simd.load(room.query_scales, base))
    former, reach = simd.load(room.peaks, base), simd.load(room.reaches, 0)
    peak = simd.at_least(top, former)
    gain = halves.power_of_two(simd.sub(top, peak))
    simd.store(room.fades, 0, halves.power_of_two(simd.sub(former, peak)))
    simd.store(room.gains, 0, gain)
    unit = simd.mul(reach, simd.splat(np.float32(1.0 / _WEIGHT_LIMIT)))
    simd.store(room.scales, 0, simd.mul(gain, unit))
    simd.store(room.reaches, 0, simd.div(simd.splat(np.float32(_WEIGHT_LIMIT)), reach))
    simd.store(room.tops, 0, top)
    simd.store(room.peaks, base, simd.keep_first(peak, some, former))


@njit(inline="always")
def _soften(query, low, seen, number, room):
    """Turn a query's scores into weights times value scales, as integers, and sum the weights.

    Weights are relative to the tile's top. Keys before `low` and from `seen` on count for nothing.
    """
    scale, top = simd.splat(room.query_scales[number]), simd.splat(room.tops[query])
    factor, zero = simd.splat(room.reaches[query]), simd.splat(_ZERO)
    at, total = query * TILE, zero
    cut = seen < TILE or low > 0
    for strip in range(0, TILE, LANES):
        score = simd.mul(simd.load(room.weights, at + strip), scale)
        weight = halves.power_of_two(simd.sub(score, top))
        if cut:
            weight = simd.keep_first(weight, seen - strip, zero)
            weight = simd.keep_first(zero, low - strip, weight)
        total = simd.add(total, weight)
        weight = simd.mul(weight, simd.load(room.value_scales, strip))
        if cut:
            weight = simd.keep_first(weight, seen - strip, zero)
            weight = simd.keep_first(zero, low - strip, weight)
        halves.store_halves(room.weights, 2 * at + strip, halves.rounded(weight, factor))
    former = simd.mul(simd.load(room.sums, number * LANES), simd.splat(room.fades[query]))
    total = simd.fma(total, simd.splat(room.gains[query]), former)
    simd.store(room.sums, number * LANES, total)


@njit(inline="always")
def _gather(height, query, into, width, pairs, room):
    """gathered ← gathered · fade + scale · Σ weight · value of `height` queries."""
    wide = WIDTHS[height - 1]
    vectors = width // LANES
    vector = 0
    while vector < vectors:
        step = wide if vector + wide <= vectors else 1
        value_tile(height, step, room.weights, query * TILE, TILE, room.values, vector * LANES,
                   width, pairs, room.gathered, into + vector * LANES, width, room.scales, query,
                   room.fades, query)  # fmt: skip
        vector += step
