"""Causal attention over paged KV memory on the CPU: one kernel for prefill and decode.

Keys and values are read in place through the page table. A query row walks its keys in tiles of
`TILE` positions counted from position 0, with an online softmax (Milakov & Gimelshein 2018, as in
FlashAttention, Dao et al. 2022): which additions happen, and in which order, follows from the row's
position alone, so its result is bitwise the same alone or batched, in any chunking, as prefill or
as decode, at any page size. The work is cut into blocks of neighbouring rows times key-value heads;
the rows of a block share a tile while it is in the first-level cache.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from . import lanes as simd
from .lanes import LANES

TILE = 64
"""Keys between two updates of the running softmax."""
BLOCK_ROWS = 8
"""Most query rows of one unit of work."""

_MINUS_INFINITY = np.float32(-np.inf)
_ZERO = np.float32(0.0)


class Geometry(NamedTuple):
    """Sizes that a kernel needs; numba takes a named tuple apart at compile time."""

    heads: int
    kv_heads: int
    head_dim: int
    head_width: int
    """Floats of a head with its zeros: `head_dim` rounded up to whole vectors."""
    page_tokens: int
    page_stride: int
    """Floats from one page to the next."""


def scratch_floats(geometry: Geometry) -> int:
    """Size of the `scratch` array of one thread: partial sums, a tile's weights, query states."""
    queries = BLOCK_ROWS * (geometry.heads // geometry.kv_heads)
    return LANES * LANES + TILE + queries * (1 + LANES)


@njit(nogil=True, cache=True, error_model="numpy")
def attend(qkv, output, memory, tables, blocks, geometry, layer, scratch, share):
    """Fill `output` for one thread's share of the blocks and key-value heads.

    `qkv` float32 [rows, (heads + 2·kv_heads)·head_width]: each row begins with its rotated queries.
    `output` float32 [≥ rows, heads·head_width]. `memory` float32 [n]: pages, each [layers, 2 (keys,
    values), kv_heads, page_tokens, head_width]. `tables` int64 [m]: page tables one after another.
    `blocks` int64 [b, 4]: first row, rows (at most `BLOCK_ROWS`), position of the first row, start
    of its page table in `tables`. `geometry`: `Geometry`; `scratch` float32 [scratch_floats];
    `share` = (this thread, threads).
    """
    heads, kv_heads, head_dim, width, page_tokens, page_stride = geometry
    group = heads // kv_heads
    head_stride = page_tokens * width
    values_at = kv_heads * head_stride
    partial = LANES * LANES
    weight = scratch[partial : partial + TILE]
    peaks = scratch[partial + TILE : partial + TILE + BLOCK_ROWS * group]
    sums = scratch[partial + TILE + BLOCK_ROWS * group :]
    key_at = np.empty(TILE, np.int64)
    queries, outputs = qkv.reshape(-1), output.reshape(-1)
    scale = np.float32(1.0 / np.sqrt(head_dim))
    for unit in range(share[0], len(blocks) * kv_heads, share[1]):
        first_row, rows, position, table = blocks[unit // kv_heads]
        kv_head = unit % kv_heads
        head_at = layer * 2 * values_at + kv_head * head_stride
        end = position + rows
        peaks[:] = _MINUS_INFINITY
        sums[:] = _ZERO
        for row in range(first_row, first_row + rows):
            begin = (row * heads + kv_head * group) * width
            outputs[begin : begin + group * width] = _ZERO
        for tile in range(0, end, TILE):
            for key in range(TILE):
                place = min(tile + key, end - 1)
                page = tables[table + place // page_tokens]
                key_at[key] = page * page_stride + head_at + place % page_tokens * width
            for query in range(max(tile - position, 0) * group, rows * group):
                row, head = first_row + query // group, kv_head * group + query % group
                query_at = row * qkv.shape[1] + head * width
                out_at = (row * heads + head) * width
                count = min(TILE, position + query // group + 1 - tile)
                _score(queries, query_at, memory, key_at, count, width, scratch, scale)
                fade = _soften(weight, count, peaks, sums, query)
                _gather(outputs, out_at, memory, key_at, values_at, count, width, weight, fade)
        for query in range(rows * group):
            row, head = first_row + query // group, kv_head * group + query % group
            whole = simd.splat(simd.total(simd.load(sums, query * LANES)))
            begin = (row * heads + head) * width
            for at in range(begin, begin + width, LANES):
                simd.store(outputs, at, simd.div(simd.load(outputs, at), whole))


@njit(inline="always")
def _score(query_rows, query_at, memory, key_at, count, width, scratch, scale):
    """Scaled products of a query with the tile's first `count` keys, after the partial sums.

    Works on strips of 16 keys; scores beyond `count` in the last strip are meaningless.
    """
    for strip in range(0, count, LANES):
        for key in range(strip, strip + LANES, 4):
            a = b = c = d = simd.splat(_ZERO)
            for at in range(0, width, LANES):
                query = simd.load(query_rows, query_at + at)
                a = simd.fma(query, simd.load(memory, key_at[key] + at), a)
                b = simd.fma(query, simd.load(memory, key_at[key + 1] + at), b)
                c = simd.fma(query, simd.load(memory, key_at[key + 2] + at), c)
                d = simd.fma(query, simd.load(memory, key_at[key + 3] + at), d)
            into = (key - strip) * LANES
            simd.store(scratch, into, a)
            simd.store(scratch, into + LANES, b)
            simd.store(scratch, into + 2 * LANES, c)
            simd.store(scratch, into + 3 * LANES, d)
        scores = simd.mul(simd.sum_each(scratch, 0), simd.splat(scale))
        simd.store(scratch, LANES * LANES + strip, scores)


@njit(inline="always")
def _soften(weight, count, peaks, sums, query):
    """Turn a query's scores into softmax weights in place, and bring its peak and sums up to date.

    Returns the factor for what was gathered under the former peak.
    """
    highest = simd.splat(peaks[query])
    for strip in range(0, count, LANES):
        scores = simd.load(weight, strip)
        scores = simd.keep_first(scores, count - strip, simd.splat(_MINUS_INFINITY))
        highest = simd.at_least(scores, highest)
    peak = simd.peak(highest)
    fade = simd.exp(simd.splat(np.float32(peaks[query] - peak)))
    lane_sums = simd.mul(simd.load(sums, query * LANES), fade)
    for strip in range(0, count, LANES):
        grown = simd.exp(simd.sub(simd.load(weight, strip), simd.splat(peak)))
        grown = simd.keep_first(grown, count - strip, simd.splat(_ZERO))
        simd.store(weight, strip, grown)
        lane_sums = simd.add(lane_sums, grown)
    peaks[query] = peak
    simd.store(sums, query * LANES, lane_sums)
    return fade


@njit(inline="always")
def _gather(output, out_at, memory, key_at, values_at, count, width, weight, fade):
    """output ← output · fade + Σ weight · value, key after key; 64 columns at a time."""
    full = width // (4 * LANES) * (4 * LANES)
    for at in range(0, full, 4 * LANES):
        into = out_at + at
        a = simd.mul(simd.load(output, into), fade)
        b = simd.mul(simd.load(output, into + LANES), fade)
        c = simd.mul(simd.load(output, into + 2 * LANES), fade)
        d = simd.mul(simd.load(output, into + 3 * LANES), fade)
        for key in range(count):
            value = key_at[key] + values_at + at
            share = simd.splat(weight[key])
            a = simd.fma(share, simd.load(memory, value), a)
            b = simd.fma(share, simd.load(memory, value + LANES), b)
            c = simd.fma(share, simd.load(memory, value + 2 * LANES), c)
            d = simd.fma(share, simd.load(memory, value + 3 * LANES), d)
        simd.store(output, into, a)
        simd.store(output, into + LANES, b)
        simd.store(output, into + 2 * LANES, c)
        simd.store(output, into + 3 * LANES, d)
    for at in range(full, width, LANES):
        a = simd.mul(simd.load(output, out_at + at), fade)
        for key in range(count):
            share = simd.splat(weight[key])
            a = simd.fma(share, simd.load(memory, key_at[key] + values_at + at), a)
        simd.store(output, out_at + at, a)
