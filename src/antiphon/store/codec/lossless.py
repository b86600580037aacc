"""Lossless: the bytes of numbers sorted by what they mean, then Zstandard.

A float's sign and exponent vary little, and less within a channel; most bits of its mantissa are
noise. So the upper byte of each number, with the sign moved below the exponent, goes channel by
channel over all tokens; then the next byte of each number, and so on. Bytes that compression does
not make smaller stay as they are, at no cost.

    a plane: uint32 bytes here; then a Zstandard frame, or, if as many as there are numbers, bytes
"""

import struct

import numpy as np
import numpy.typing as npt
import zstandard

from .block_shape import BlockShape

_LEVEL = 1
_SIZE = struct.Struct("<I")


def encode(block: npt.NDArray, shape: BlockShape) -> bytes:
    """Any content, NaN included."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
    parts = []
    for plane in _planes(block, shape):
        packed = compressor.compress(plane)
        kept = packed if len(packed) < len(plane) else plane
        parts += [_SIZE.pack(len(kept)), kept]
    return b"".join(parts)


def decode(data: memoryview, shape: BlockShape, into: npt.NDArray) -> bool:
    """Fill `into`; False: this is no such payload. Takes no more memory than the block's."""
    planes = []
    for _ in range(shape.dtype.itemsize):
        if len(data) < _SIZE.size:
            return False
        (size,) = _SIZE.unpack_from(data)
        plane = _plane(data[_SIZE.size : _SIZE.size + size], size, shape.elements)
        if plane is None:
            return False
        planes.append(plane)
        data = data[_SIZE.size + size :]
    if len(data):
        return False
    _join(planes, shape, into)
    return True


def _plane(data: memoryview, size: int, count: int) -> npt.NDArray[np.uint8] | None:
    if len(data) != size or size > count:
        return None
    if size < count:
        try:
            if zstandard.frame_content_size(data) != count:
                return None
            data = memoryview(zstandard.ZstdDecompressor().decompress(data, max_output_size=count))
        except zstandard.ZstdError:
            return None
    return np.frombuffer(data, np.uint8) if len(data) == count else None


def _planes(block: npt.NDArray, shape: BlockShape) -> list[bytes]:
    bits = block.view(np.uint16 if block.dtype.itemsize == 2 else np.uint32)
    width = 8 * bits.dtype.itemsize
    # [layers, 2, heads, width, pages, page_tokens], the sign as the last bit
    bits = np.ascontiguousarray(bits.transpose(1, 2, 3, 5, 0, 4))
    bits = bits << 1 | bits >> (width - 1)
    planes = bits.view(np.uint8).reshape(-1, width // 8)
    return [planes[:, byte].tobytes() for byte in reversed(range(width // 8))]


def _join(planes: list[npt.NDArray[np.uint8]], shape: BlockShape, into: npt.NDArray) -> None:
    unsigned = np.uint16 if into.dtype.itemsize == 2 else np.uint32
    joined = np.empty((shape.elements, into.dtype.itemsize), np.uint8)
    for byte, plane in enumerate(reversed(planes)):
        joined[:, byte] = plane
    bits = joined.view(unsigned)[:, 0]
    bits = bits >> 1 | bits << (8 * into.dtype.itemsize - 1)
    sides = (shape.layers, 2, shape.heads, shape.width, shape.pages, shape.page_tokens)
    into.view(unsigned)[...] = bits.reshape(sides).transpose(4, 0, 1, 2, 5, 3)
