"""Whole numbers that no symbol stands for: a byte each, or five.

    z = 2·(|q| − limit − 1), + 1 if q < 0;  z < 255: the byte z, else 255
    bytes, then q as int32 of each that is 255

`limit` is the largest number that has a symbol, so that most escapes are just beyond it.
"""

import numpy as np
import numpy.typing as npt

_FAR = 255
Numbers = npt.NDArray[np.int32]


def pack_escapes(numbers: Numbers, limits: Numbers) -> bytes:
    """Numbers, each beyond its limit."""
    over = np.abs(numbers.astype(np.int64)) - limits - 1
    near = np.minimum(2 * over + (numbers < 0), _FAR)
    return near.astype(np.uint8).tobytes() + numbers[near == _FAR].astype("<i4").tobytes()


def unpack_escapes(data: memoryview, limits: Numbers) -> Numbers | None:
    """The numbers; None: these are not as many as there are `limits`."""
    count = len(limits)
    if len(data) < count:
        return None
    near = np.frombuffer(data[:count], np.uint8)
    far = near == _FAR
    if len(data) != count + 4 * int(np.count_nonzero(far)):
        return None
    sizes = near.astype(np.int32) // 2 + limits + 1
    numbers = np.where(near % 2, -sizes, sizes).astype(np.int32)
    numbers[far] = np.frombuffer(data[count:], "<i4")
    return numbers
