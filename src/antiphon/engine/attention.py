"""Causal attention over paged KV memory on the CPU: one kernel for prefill and decode.

Keys and values are read through the page table, whatever the page size. A query row walks its keys
in tiles of `TILE` positions counted from position 0, with an online softmax (Milakov & Gimelshein
2018, as in FlashAttention, Dao et al. 2022): what is computed, and in which order, follows from the
row's position and the keys and values up to there. So its result is bitwise the same alone or
batched, in any chunking, as prefill or as decode, at any page size. The work is cut into blocks of
neighbouring rows times key-value heads. A block prepares a tile of keys and values once for all its
queries (rows times query heads of the group), which share loads of them in register tiles.

The arithmetic follows the memory: float32 pages are multiplied in float32, bfloat16 pages as whole
numbers of 12 to 14 bits, twice as many at a time.
"""

from numba import types
from numba.extending import overload

from antiphon.checkpoint import ModelSpec

from . import attention_fp32, attention_int16
from .attention_block import BLOCK_ROWS, Geometry
from .kernel_cache import kernel
from .kv_memory import KvLayout

__all__ = ["BLOCK_ROWS", "Geometry", "attend", "geometry_of", "scratch_floats"]


def geometry_of(spec: ModelSpec, layout: KvLayout) -> Geometry:
    """What the kernels need to know of a model over pages of `layout`."""
    return Geometry(
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        head_width=layout.head_width,
        page_tokens=layout.page_tokens,
        page_stride=layout.page_stride,
        scale=spec.score_scale,
    )


def scratch_floats(geometry: Geometry) -> int:
    """Size of the `scratch` array of one thread."""
    return max(attention_fp32.scratch_floats(geometry), attention_int16.scratch_floats(geometry))


@kernel
def attend(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share):
    """Fill `output` for one thread's share of the blocks and key-value heads.

    `qkv` float32 [rows, (heads + 2·kv_heads)·head_width]: each row begins with its rotated queries.
    `output` float32 [≥ rows, heads·head_width]. `memory` float32 or bfloat16 (as uint16) [n]:
    pages, each [layers, 2 (keys, values), kv_heads, page_tokens, head_width]. `tables` int64 [m]:
    page tables one after another. `blocks` int64 [b, 4]: first row, rows (at most `BLOCK_ROWS`),
    position of the first row, start of its page table in `tables`. `geometry`: `Geometry`;
    `window`: how many positions a row sees, its own included, 0 for all; `scratch` float32
    [scratch_floats]; `share` = (this thread, threads).
    """
    _attend(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share)


def _attend(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share):
    """Chosen by the type of `memory` as numba compiles."""
    raise NotImplementedError


@overload(_attend)
def _typed_attend(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share):
    def whole_numbers(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share):
        attention_int16.attend(
            qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share
        )

    def floats(qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share):
        attention_fp32.attend(
            qkv, output, memory, tables, blocks, geometry, layer, window, scratch, share
        )

    return whole_numbers if memory.dtype == types.uint16 else floats
