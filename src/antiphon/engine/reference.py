"""The kernels' arithmetic in plain torch: slow, obvious, the oracle of their tests."""

import torch
import torch.nn.functional as F

from .batch import Batch
from .kv_memory import KvMemory


def rms_norm(rows: torch.Tensor, gain: torch.Tensor, epsilon: float) -> torch.Tensor:
    """rows / √(mean(rows²) + epsilon) · gain, over the last axis."""
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + epsilon) * gain


def gated_silu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up for [rows, 2·width]: gate, then up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def gated_gelu(gate_up: torch.Tensor) -> torch.Tensor:
    """gelu(gate) · up by the tanh approximation, for [rows, 2·width]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


def rotate(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Turn pairs (i, i + head_dim/2) of [rows, heads, head_dim]; angles [rows, head_dim/2]."""
    first, second = heads.chunk(2, dim=-1)
    cosines, sines = cosines[:, None], sines[:, None]
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    return torch.cat(turned, dim=-1)


def attend(
    queries: torch.Tensor, batch: Batch, memory: KvMemory, layer: int, window: int = 0
) -> torch.Tensor:
    """Causal attention of [rows, heads, head_width] over the batch's pages; the same shape.

    `window`: how many positions a row sees, its own included; 0: all.

    Gathers each block's keys and values out of their pages; scores are scaled by the width of
    `queries`, so it fits models whose heads are whole vectors.
    """
    page_tokens = memory.layout.page_tokens
    page, layer = memory.homes[layer].tolist()
    output = torch.empty_like(queries)
    for first_row, rows, position, table in batch.blocks.tolist():
        places = torch.arange(position + rows, device="cpu")
        pages = torch.from_numpy(batch.tables[page])[table + places // page_tokens]
        keys, values = (
            memory.tensor[pages, layer, part, :, places % page_tokens].float().transpose(0, 1)
            for part in (0, 1)
        )
        behind = torch.arange(position, position + rows, device="cpu")[:, None] - places
        visible = (behind >= 0) & (behind < (window or position + rows))
        block = queries[first_row : first_row + rows].transpose(0, 1)
        group = len(block) // len(keys)
        attended = F.scaled_dot_product_attention(
            block,
            keys.repeat_interleave(group, 0),
            values.repeat_interleave(group, 0),
            attn_mask=visible,
        )
        output[first_row : first_row + rows] = attended.transpose(0, 1)
    return output
