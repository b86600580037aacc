"""One tensor of a checkpoint: where its bytes are and how they are to be read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from antiphon.errors import ModelFileError


class StorageType(StrEnum):
    """How the elements are stored; the Q types are ggml's blocks of 32 along the last dimension."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q8_0 = "Q8_0"


BLOCK_LAYOUT: Mapping[StorageType, tuple[int, int]] = {
    StorageType.F32: (1, 4),
    StorageType.F16: (1, 2),
    StorageType.BF16: (1, 2),
    StorageType.Q4_0: (32, 18),
    StorageType.Q4_1: (32, 20),
    StorageType.Q8_0: (32, 34),
}
"""(elements, bytes) of a block: f16 scale, for Q4_1 also f16 minimum, then the packed elements."""


def stored_bytes(storage: StorageType, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of this storage type and (row-major) shape."""
    elements, size = BLOCK_LAYOUT[storage]
    return prod(shape) // elements * size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorEntry:
    """One tensor under the engine's name for it (see `model_tensors`).

    `shape` is as in PyTorch: (out, in) for a matrix.

    `raw` is the tensor's bytes: uint8, one-dimensional, memory-mapped from `path`, valid for as
    long as it is referenced, never to be written to.
    `interleaved_heads` is None for rows in Hugging Face's order. Otherwise the rows are those of
    that many attention heads, each with its two rotary halves interleaved row by row (0, d/2, 1,
    d/2+1, …), as llama.cpp's converter writes q and k; whoever loads the values brings them back
    to the order 0, 1, …, d−1. `offset` is what whoever loads the values adds to each of them.
    """

    name: str
    source_name: str
    path: Path
    shape: tuple[int, ...]
    storage: StorageType
    raw: npt.NDArray[np.uint8]
    interleaved_heads: int | None = None
    offset: float = 0.0

    def rows(self, name: str, first: int, count: int) -> "TensorEntry":
        """Rows `first` … `first` + `count` − 1 as a tensor of its own, sharing the bytes."""
        row_bytes = len(self.raw) // self.shape[0]
        part = self.raw[first * row_bytes : (first + count) * row_bytes]
        return replace(self, name=name, shape=(count, *self.shape[1:]), raw=part)


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """The whole file as memory-mapped bytes.

    Nobody writes to them; the mapping is copy-on-write only because torch takes no read-only
    array. It outlives a replaced or deleted file, but not one that is cut short in place.
    """
    try:
        return np.memmap(path, dtype=np.uint8, mode="c")
    except ValueError:
        raise ModelFileError(path, "the file is empty") from None
    except OSError as error:
        raise ModelFileError(path, f"can't be read: {error.strerror or error}") from None
