"""Float32 → ggml's stored bytes, for the files that tests write.

The `gguf` library packs the plain types; the K types it only reads. Those are packed here: to the
nearest step between each part's extremes, without the search for better scales that a quantiser
for users would do.
"""

import gguf
import numpy as np
import numpy.typing as npt

from antiphon.checkpoint import StorageType

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def quantize(array: Floats, storage: StorageType) -> npt.NDArray[np.generic]:
    """What a GGUF file stores for `array`; the last dimension is in whole blocks."""
    match storage:
        case StorageType.Q4_K | StorageType.Q5_K:
            blocks = array.reshape(-1, 8, 32)
            packed = _pack_with_minimum(blocks, levels=15 if storage is StorageType.Q4_K else 31)
        case StorageType.Q6_K:
            packed = _pack_q6_k(array.reshape(-1, 16, 16))
        case _:
            return gguf.quants.quantize(array, gguf.GGMLQuantizationType[storage])
    return packed.reshape(*array.shape[:-1], -1)


def rounded(array: Floats, storage: StorageType) -> Floats:
    """`array` as it comes back from a file: packed here, unpacked by the `gguf` library."""
    kind = gguf.GGMLQuantizationType[storage]
    return gguf.quants.dequantize(quantize(array, storage), kind).reshape(array.shape)


def _pack_with_minimum(blocks: Floats, levels: int) -> Bytes:
    """[blocks, 8, 32] → the bytes of Q4_K (15 levels above the minimum) or Q5_K (31)."""
    lowest = np.minimum(blocks.min(axis=2), 0)
    scale, scales = _steps((blocks.max(axis=2).clip(0) - lowest) / levels, 63)
    minimum, minima = _steps(-lowest, 63)
    step = (scale.astype(np.float32) * scales)[..., None]
    above = blocks + (minimum.astype(np.float32) * minima)[..., None]
    quants = np.rint(above / np.where(step == 0, 1, step)).clip(0, levels).astype(np.uint8)
    pairs = quants.reshape(-1, 4, 2, 32)
    halves = _halves(pairs)
    parts = [_bytes(scale), _bytes(minimum), _pack_scales(scales, minima)]
    if levels == 31:
        parts.append(np.packbits(quants >> 4, axis=1, bitorder="little").reshape(-1, 32))
    return np.concatenate([*parts, halves.reshape(-1, 128)], axis=1)


def _pack_q6_k(blocks: Floats) -> Bytes:
    """[blocks, 16, 16] → the bytes of Q6_K."""
    scale, scales = _steps(np.abs(blocks).max(axis=2) / 31, 127)
    step = (scale.astype(np.float32) * scales)[..., None]
    whole = np.rint(blocks / np.where(step == 0, 1, step)).clip(-32, 31)
    quants = (whole + 32).astype(np.uint8)
    runs = quants.reshape(-1, 2, 2, 64)
    halves = _halves(runs)
    pairs = quants.reshape(-1, 2, 4, 32) >> 4
    upper = (pairs << np.array([0, 2, 4, 6], np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)
    head = [halves.reshape(-1, 128), upper.reshape(-1, 64)]
    return np.concatenate([*head, scales.astype(np.uint8), _bytes(scale)], axis=1)


def _halves(runs: Bytes) -> Bytes:
    """[blocks, n, 2, run] → [blocks, n, run]: the four low bits of each two runs in one byte."""
    low = runs & np.uint8(15)
    return low[:, :, 0] | (low[:, :, 1] << np.uint8(4))


def _steps(wanted: Floats, most: int) -> tuple[npt.NDArray[np.float16], Bytes]:
    """[blocks, parts] → one float16 step a block [blocks, 1] and how many of it each part has."""
    step = (wanted.max(axis=1, keepdims=True) / most).astype(np.float16)
    counts = np.rint(wanted / np.where(step == 0, 1, step)).clip(0, most)
    return step, counts.astype(np.uint8)


def _pack_scales(scales: Bytes, minima: Bytes) -> Bytes:
    """Two times 8 six-bit numbers in 12 bytes."""
    four, six = np.uint8(4), np.uint8(6)
    first = scales[:, :4] | ((scales[:, 4:] >> four) << six)
    second = minima[:, :4] | ((minima[:, 4:] >> four) << six)
    third = _halves(np.stack([scales[:, 4:], minima[:, 4:]], axis=1)[:, None])[:, 0]
    return np.concatenate([first, second, third], axis=1)


def _bytes(halves: npt.NDArray[np.float16]) -> Bytes:
    return np.ascontiguousarray(halves).view(np.uint8)
