"""Causal attention over paged KV memory on the CPU: one kernel for prefill and decode.

Keys and values are read in place through the page table. A query row walks its keys in tiles of
`TILE` positions counted from position 0, with an online softmax (Milakov & Gimelshein 2018, as in
FlashAttention, Dao et al. 2022): which additions happen, and in which order, follows from the row's
position alone, so its result is bitwise the same alone or batched, in any chunking, as prefill or
as decode, at any page size. The work is cut into blocks of neighbouring rows times key-value heads;
the rows of a block share a tile while it is in the first-level cache.
"""

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


def scratch_floats(heads_per_group: int) -> int:
    """Size of the `scratch` array of one thread."""
    queries = BLOCK_ROWS * heads_per_group
    return LANES * LANES + TILE + queries * (1 + LANES)


@njit(nogil=True, cache=True, error_model="numpy")
def attend(
    qkv, output, memory, tables, blocks, page_tokens, page_stride, layer_at, shape, scratch, share
):
    """Fill `output` for the units of work of one thread.

    `qkv` float32 [rows, (heads + 2·kv_heads)·head_dim]: rotated queries come first in each row.
    `output` float32 [≥ rows, heads·head_dim]. `memory` float32 [n]: page p's layer begins at element
    p·page_stride + layer_at and holds keys, then values, each [kv_heads, page_tokens, head_dim].
    `tables` int64 [m]: page tables one after another. `blocks` int64 [b, 4]: first row, rows,
    position of the first row, start of its page table in `tables`. `shape` = (heads, kv_heads,
    head_dim); `scratch` float32 [≥ scratch_floats]; `share` = (this thread, threads).
    """
    heads, kv_heads, head_dim = shape
    group = heads // kv_heads
    key_at = np.empty(TILE, np.int64)
    scale = np.float32(1.0 / np.sqrt(head_dim))
    values_at = kv_heads * page_tokens * head_dim
    partial = LANES * LANES
    state = partial + TILE
    weight = scratch[partial:state]
    sums = state + BLOCK_ROWS * group
    query_rows = qkv.reshape(-1)
    output_rows = output.reshape(-1)
    for unit in range(share[0], len(blocks) * kv_heads, share[1]):
        first_row, rows, position, table = blocks[unit // kv_heads]
        kv_head = unit % kv_heads
        head_at = layer_at + kv_head * page_tokens * head_dim
        for query in range(rows * group):
            row, head = first_row + query // group, kv_head * group + query % group
            scratch[state + query] = _MINUS_INFINITY
            simd.store(scratch, sums + query * LANES, simd.splat(_ZERO))
            output_rows[row * heads * head_dim + head * head_dim :][:head_dim] = _ZERO
        for tile in range(0, position + rows, TILE):
            for key in range(TILE):
                place = tile + min(key, position + rows - 1 - tile)
                page = tables[table + place // page_tokens]
                key_at[key] = page * page_stride + head_at + place % page_tokens * head_dim
            for query in range(max(tile - position, 0) * group, rows * group):
                row, head = first_row + query // group, kv_head * group + query % group
                query_at = row * qkv.shape[1] + head * head_dim
                count = min(TILE, position + query // group + 1 - tile)
                lane_sums = simd.load(scratch, sums + query * LANES)
                _score(query_rows, query_at, memory, key_at, count, head_dim, scratch, scale)
                largest, rescale, lane_sums = _soften(
                    weight, count, scratch[state + query], lane_sums
                )
                scratch[state + query] = largest
                simd.store(scratch, sums + query * LANES, lane_sums)
                out_at = row * heads * head_dim + head * head_dim
                _gather(
                    output_rows, out_at, memory, key_at, values_at, count, head_dim, weight, rescale
                )
        for query in range(rows * group):
            row, head = first_row + query // group, kv_head * group + query % group
            whole = simd.splat(simd.total(simd.load(scratch, sums + query * LANES)))
            out_at = row * heads * head_dim + head * head_dim
            for at in range(out_at, out_at + head_dim, LANES):
                simd.store(output_rows, at, simd.div(simd.load(output_rows, at), whole))


@njit(inline="always")
def _score(query_rows, query_at, memory, key_at, count, head_dim, scratch, scale):
    """Scaled products of a query with the tile's first `count` keys, after the partial sums.

    Works on strips of 16 keys; those beyond `count` in the last strip hold finite-or-not garbage.
    """
    for strip in range(0, count, LANES):
        for key in range(strip, strip + LANES, 4):
            a = b = c = d = simd.splat(_ZERO)
            for at in range(0, head_dim, LANES):
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
def _soften(weight, count, before, lane_sums):
    """Turn scores into softmax weights in place; return (new maximum, rescale factor, lane sums)."""
    highest = simd.splat(before)
    for strip in range(0, count, LANES):
        scores = simd.keep_first(
            simd.load(weight, strip), count - strip, simd.splat(_MINUS_INFINITY)
        )
        highest = simd.at_least(scores, highest)
    largest = simd.peak(highest)
    rescale = simd.exp(simd.splat(np.float32(before - largest)))
    lane_sums = simd.mul(lane_sums, rescale)
    for strip in range(0, count, LANES):
        grown = simd.exp(simd.sub(simd.load(weight, strip), simd.splat(largest)))
        grown = simd.keep_first(grown, count - strip, simd.splat(_ZERO))
        simd.store(weight, strip, grown)
        lane_sums = simd.add(lane_sums, grown)
    return largest, rescale, lane_sums


@njit(inline="always")
def _gather(output, out_at, memory, key_at, values_at, count, head_dim, weight, rescale):
    """output ← output · rescale + Σ weight · value, key after key; 64 columns at a time."""
    wide = head_dim // (4 * LANES) * (4 * LANES)
    for at in range(0, wide, 4 * LANES):
        into = out_at + at
        a = simd.mul(simd.load(output, into), rescale)
        b = simd.mul(simd.load(output, into + LANES), rescale)
        c = simd.mul(simd.load(output, into + 2 * LANES), rescale)
        d = simd.mul(simd.load(output, into + 3 * LANES), rescale)
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
    for at in range(wide, head_dim, LANES):
        a = simd.mul(simd.load(output, out_at + at), rescale)
        for key in range(count):
            share = simd.splat(weight[key])
            a = simd.fma(share, simd.load(memory, key_at[key] + values_at + at), a)
        simd.store(output, out_at + at, a)
