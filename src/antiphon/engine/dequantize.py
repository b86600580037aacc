"""Stored bytes → float32 values, vectorised; bit for bit what the `gguf` library computes.

Block layouts: ggml's `ggml-common.h`. A block holds 32 elements of a row; Q4 blocks keep elements
0…15 in the low and 16…31 in the high halves of their 16 bytes.
"""

import torch

from antiphon.checkpoint import BLOCK_LAYOUT, StorageType


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
        case StorageType.Q4_0:
            blocks = _blocks(raw, storage)
            values = _nibbles(blocks[:, 2:]).sub_(8).mul_(_half(blocks[:, :2]))
        case StorageType.Q4_1:
            blocks = _blocks(raw, storage)
            # Two roundings, as the reference has: no fused multiply-add.
            values = _nibbles(blocks[:, 4:]).mul_(_half(blocks[:, :2])).add_(_half(blocks[:, 2:4]))
        case StorageType.Q8_0:
            blocks = _blocks(raw, storage)
            values = blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks[:, :2]))
    return values.reshape(shape)


def _blocks(raw: torch.Tensor, storage: StorageType) -> torch.Tensor:
    """The bytes of one block a row."""
    return raw.view(-1, BLOCK_LAYOUT[storage][1])


def _half(columns: torch.Tensor) -> torch.Tensor:
    """(blocks, 2) bytes of a float16 → (blocks, 1) float32."""
    return columns.contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """(blocks, 16) bytes → (blocks, 32) float32 of 0…15, low halves first."""
    return torch.cat((packed & 0x0F, packed >> 4), dim=1).float()


def _view(raw: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if raw.data_ptr() % dtype.itemsize:
        raw = raw.clone()
    return raw.view(dtype)
