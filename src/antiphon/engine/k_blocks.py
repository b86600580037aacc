"""ggml's blocks of 256 elements, whose parts have scales of their own ("K-quants") → float32.

    Q4_K  scale f16 │ minimum f16 │ 12 bytes of 8 × (scale, minimum) │ 128 bytes of halves
    Q5_K  the same, with 32 bytes of fifth bits before the halves
    Q6_K  128 bytes of halves │ 64 bytes of upper pairs of bits │ 16 × i8 scales │ scale f16

A value of Q4_K and Q5_K is (scale · its part's scale) · q − (minimum · its part's minimum), parts
of 32 elements; of Q6_K it is (scale · its part's scale) · (q − 32), parts of 16. The bit orders are
those of `ggml-quants.c`; the products are rounded in this order.
"""

import torch


def q4_k(blocks: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 144] → float32 [blocks, 256]."""
    return _scaled_parts(blocks[:, :16], _halves(blocks[:, 16:], 32))


def q5_k(blocks: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 176] → float32 [blocks, 256]."""
    fifths = _shifted(blocks[:, None, 16:48], (0, 1, 2, 3, 4, 5, 6, 7)) & 1
    return _scaled_parts(blocks[:, :16], _halves(blocks[:, 48:], 32).add_(fifths << 4))


def q6_k(blocks: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 210] → float32 [blocks, 256]."""
    upper = _shifted(blocks[:, 128:192].reshape(-1, 2, 32), (0, 2, 4, 6)) & 3
    values = _halves(blocks[:, :128], 64).add_(upper << 4).float().sub_(32)
    scales = blocks[:, 192:208].view(torch.int8).float().mul_(float16s(blocks[:, 208:]))
    return values.view(-1, 16, 16).mul_(scales.unsqueeze(2)).view(-1, 256)


def _scaled_parts(head: torch.Tensor, quants: torch.Tensor) -> torch.Tensor:
    """Scales and minima [blocks, 16 bytes] applied to quants [blocks, 8, 32]."""
    low, high, both = head[:, 4:8], head[:, 8:12], head[:, 12:]
    scales = torch.cat((low & 0x3F, (both & 0x0F) | ((low >> 2) & 0x30)), dim=1)
    minima = torch.cat((high & 0x3F, (both >> 4) | ((high >> 2) & 0x30)), dim=1)
    scale = scales.float().mul_(float16s(head[:, :2])).unsqueeze(2)
    minimum = minima.float().mul_(float16s(head[:, 2:4])).unsqueeze(2)
    return quants.float().mul_(scale).sub_(minimum).view(-1, 256)


def _halves(packed: torch.Tensor, run: int) -> torch.Tensor:
    """128 bytes → [blocks, 8, 32] of 0…15: `run` low halves, then the same bytes' high ones."""
    return (_shifted(packed.reshape(len(packed), -1, run), (0, 4)) & 0x0F).view(-1, 8, 32)


def _shifted(packed: torch.Tensor, shifts: tuple[int, ...]) -> torch.Tensor:
    """[blocks, rows, n] → [blocks, rows · shifts, n]: each row, shifted right by each number."""
    by = torch.tensor(shifts, dtype=torch.uint8, device="cpu").view(-1, 1)
    return (packed.unsqueeze(2) >> by).flatten(1, 2)


def float16s(columns: torch.Tensor) -> torch.Tensor:
    """(blocks, 2) bytes of a float16 → (blocks, 1) float32."""
    return columns.contiguous().view(torch.float16).float()
