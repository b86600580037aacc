"""Rotary embedding of heads on a device, by tables that were made on the processor."""

import torch

from antiphon.checkpoint import ModelSpec

from ..rope import rotations


class Rotary:
    """Turns pairs of elements by position (Su et al. 2021), in the half-split form of Llama."""

    def __init__(self, spec: ModelSpec, context_len: int, device: torch.device) -> None:
        tables = [torch.from_numpy(table).to(device) for table in rotations(spec, context_len)]
        self._whole, self._windowed = tables[:2], tables[2:]

    def turn(self, heads: torch.Tensor, positions: torch.Tensor, *, windowed: bool) -> torch.Tensor:
        """Float32 [rows, heads, width], rotated: as `row_kernels.rotate_and_store` does."""
        cosines, sines = (
            table[positions][:, None] for table in (self._windowed if windowed else self._whole)
        )
        half = cosines.shape[-1]
        first, second, rest = heads.split([half, half, heads.shape[-1] - 2 * half], dim=-1)
        turned = (first * cosines - second * sines, second * cosines + first * sines, rest)
        return torch.cat(turned, dim=-1)
