"""Causal attention over a device's pages, in torch: gather a tile of keys, multiply, go on.

Like the processor's kernels (`engine.attention`) it walks a row's keys in tiles counted from
position 0, with an online softmax (Milakov & Gimelshein 2018, as in FlashAttention, Dao et al.
2022). All products of a call have one shape; a tile of which a row sees nothing leaves its sums as
they are, to the bit, so units that need fewer tiles may walk on with the others. Scores, weights
and sums are float32.
"""

from dataclasses import dataclass

import torch

from .shapes import Shapes
from .step_tensors import StepTensors

_MINUS_INFINITY = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerView:
    """What a layer's rows see: `window` positions, their own included, 0 for all. `number`: the
    window's in a step; `place`: which page of an entry the layer is in."""

    window: int
    number: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """Of a model: heads, key-value heads, elements of a head, what scores are multiplied by."""

    heads: int
    kv_heads: int
    head_width: int
    scale: float


def attend(
    queries: torch.Tensor,
    pages: torch.Tensor,
    step: StepTensors,
    sizes: AttentionSizes,
    shapes: Shapes,
    view: LayerView,
) -> torch.Tensor:
    """Float32 [rows, heads · head_width] of rotated queries, float32 [rows, heads, head_width].

    `pages` [pages, 2, kv_heads, page_tokens, head_width]: those of one layer, which `view` is of. A
    query that is no row's has some result.
    """
    outputs = []
    for first in range(0, step.shape.units, shapes.units):
        some = slice(first, first + shapes.units)
        outputs.append(_of_units(queries, pages, step, sizes, shapes, view, some))
    attended = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return attended.view(-1, sizes.heads * sizes.head_width)[step.places]


def _of_units(
    queries: torch.Tensor,
    pages: torch.Tensor,
    step: StepTensors,
    sizes: AttentionSizes,
    shapes: Shapes,
    view: LayerView,
    some: slice,
) -> torch.Tensor:
    """[units, query_rows, heads, head_width] of some units."""
    span, number = view.window, view.number
    own, group = step.own[some], sizes.heads // sizes.kv_heads
    units, count = own.shape
    asked = _by_kv_head(queries[step.queries[some]] * sizes.scale, sizes)
    own = own.repeat_interleave(group, 1)[:, None, :, None]
    peak = torch.full((*asked.shape[:3], 1), _MINUS_INFINITY, device=asked.device)
    total, gathered = torch.zeros_like(peak), torch.zeros_like(asked)
    offsets = torch.arange(shapes.tile, device=asked.device)
    lows, highs, tables = step.lows[number, some], step.highs[some], step.tables[view.place, some]
    for tile in range(step.shape.tiles[number]):
        at = step.starts[number, some, None] + (tile * shapes.tile + offsets)
        keys, values = _gathered(pages, tables, torch.clamp(at, lows[:, None], highs[:, None]))
        scores = asked @ keys
        behind = own - at[:, None, None]
        hidden = (behind < 0) | (behind >= span) if span else behind < 0
        scores.masked_fill_(hidden, _MINUS_INFINITY)
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
        base = higher.masked_fill(higher == _MINUS_INFINITY, 0.0)
        weights, fade = torch.exp(scores - base), torch.exp(peak - base)
        total = total * fade + weights.sum(-1, keepdim=True)
        gathered = gathered * fade + weights @ values
        peak = higher
    attended = gathered / total
    attended = attended.view(units, sizes.kv_heads, count, group, sizes.head_width)
    return attended.transpose(1, 2).reshape(units, count, sizes.heads, sizes.head_width)


def _by_kv_head(queries: torch.Tensor, sizes: AttentionSizes) -> torch.Tensor:
    """[units, query_rows, heads, width] → [units, kv_heads, query_rows · group, width]."""
    units, count = queries.shape[:2]
    grouped = queries.view(units, count, sizes.kv_heads, -1, sizes.head_width)
    return grouped.transpose(1, 2).reshape(units, sizes.kv_heads, -1, sizes.head_width)


def _gathered(
    pages: torch.Tensor, tables: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [units, kv_heads, width, tile] and values [units, kv_heads, tile, width], float32."""
    page_tokens = pages.shape[3]
    page = tables.gather(1, positions // page_tokens)
    both = pages[page, :, :, positions % page_tokens].float()
    keys, values = both[:, :, 0], both[:, :, 1]
    return keys.permute(0, 2, 3, 1).contiguous(), values.transpose(1, 2).contiguous()
