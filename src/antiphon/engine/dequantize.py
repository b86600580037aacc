"""Stored bytes → float32 values, vectorised; bit for bit what the `gguf` library computes.

Block layouts: ggml's `ggml-common.h`. Here the floats and the blocks of 32 elements of a row:

    Q4_0  scale f16 │ 16 bytes of halves                        (q − 8) · scale
    Q4_1  scale f16 │ minimum f16 │ 16 bytes of halves          q · scale + minimum
    Q5_0  scale f16 │ 32 high bits │ 16 bytes of halves         (q − 16) · scale
    Q5_1  scale f16 │ minimum f16 │ 32 high bits │ 16 bytes     q · scale + minimum
    Q8_0  scale f16 │ 32 × i8                                   q · scale

Of the bytes of halves, the low ones are elements 0…15, the high ones 16…31; bit i of the high bits
(little-endian) is element i's. Where there are two roundings, the reference has two: nothing here
may become a fused multiply-add. Blocks of 256: `k_blocks`.
"""

import torch

from antiphon.checkpoint import BLOCK_LAYOUT, StorageType

from .k_blocks import float16s, q4_k, q5_k, q6_k


def dequantize(raw: torch.Tensor, storage: StorageType, shape: tuple[int, ...]) -> torch.Tensor:
    """Values of a tensor as float32, contiguous, of `shape`.

    `raw`: uint8, one-dimensional, exactly the tensor's bytes. F32 shares memory with `raw` when
    its address is a multiple of 4, all else is new memory. Does not mutate.
    """
    match storage:
        case StorageType.F32:
            values = _view(raw, torch.float32)
        case StorageType.F16:
            values = _view(raw, torch.float16).float()
        case StorageType.BF16:
            values = _view(raw, torch.bfloat16).float()
        case _:
            values = _BLOCKS[storage](raw.view(-1, BLOCK_LAYOUT[storage][1]))
    return values.reshape(shape)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return _nibbles(blocks[:, 2:]).float().sub_(8).mul_(float16s(blocks[:, :2]))


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    values = _nibbles(blocks[:, 4:]).float()
    return values.mul_(float16s(blocks[:, :2])).add_(float16s(blocks[:, 2:4]))


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    values = _fives(blocks[:, 2:6], blocks[:, 6:])
    return values.sub_(16).mul_(float16s(blocks[:, :2]))


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    values = _fives(blocks[:, 4:8], blocks[:, 8:])
    return values.mul_(float16s(blocks[:, :2])).add_(float16s(blocks[:, 2:4]))


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].view(torch.int8).float().mul_(float16s(blocks[:, :2]))


_BLOCKS = {
    StorageType.Q4_0: _q4_0,
    StorageType.Q4_1: _q4_1,
    StorageType.Q5_0: _q5_0,
    StorageType.Q5_1: _q5_1,
    StorageType.Q8_0: _q8_0,
    StorageType.Q4_K: q4_k,
    StorageType.Q5_K: q5_k,
    StorageType.Q6_K: q6_k,
}
"""Each takes uint8 [blocks, bytes of a block] and returns float32 [blocks, elements]."""


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """(blocks, 16) bytes → (blocks, 32) bytes of 0…15, low halves first."""
    return torch.cat((packed & 0x0F, packed >> 4), dim=1)


def _fives(high: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """4 bytes of fifth bits and 16 of halves → (blocks, 32) float32 of 0…31."""
    bits = (high.unsqueeze(2) >> torch.arange(8, dtype=torch.uint8, device="cpu")) & 1
    return _nibbles(packed).add_(bits.flatten(1) << 4).float()


def _view(raw: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if raw.data_ptr() % dtype.itemsize:
        raw = raw.clone()
    return raw.view(dtype)
