"""Reads the header of a GGUF file: metadata and the tensors' places, never their values.

    magic "GGUF" │ version u32 │ tensor count u64 │ metadata count u64
    metadata:     key │ type u32 │ value                                      (count times)
    tensors:      name │ dimensions u32 │ u64 each │ type u32 │ offset u64     (count times)
    padding up to `general.alignment`, then the tensors' bytes

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
Every length is checked against the file before it is used, so a damaged or hostile file costs one
clear error, and never more memory than a small multiple of its own header.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType, GGUFValueType

from antiphon.errors import ModelFileError

from .tensor_entry import BLOCK_LAYOUT, StorageType, map_file, stored_bytes

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_HEADER_LIMIT_BYTES = 256 * 1024**2
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32

_U32 = Struct("<I")
_U64 = Struct("<Q")

_SCALARS: Mapping[int, np.dtype[Any]] = {
    GGUFValueType.UINT8: np.dtype("<u1"),
    GGUFValueType.INT8: np.dtype("<i1"),
    GGUFValueType.UINT16: np.dtype("<u2"),
    GGUFValueType.INT16: np.dtype("<i2"),
    GGUFValueType.UINT32: np.dtype("<u4"),
    GGUFValueType.INT32: np.dtype("<i4"),
    GGUFValueType.UINT64: np.dtype("<u8"),
    GGUFValueType.INT64: np.dtype("<i8"),
    GGUFValueType.FLOAT32: np.dtype("<f4"),
    GGUFValueType.FLOAT64: np.dtype("<f8"),
    GGUFValueType.BOOL: np.dtype("?"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GgufTensor:
    """A tensor as the file names it; `shape` is row-major (the reverse of the file's order)."""

    name: str
    path: Path
    shape: tuple[int, ...]
    storage: StorageType
    raw: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GgufFile:
    """A parsed header. Metadata values: bool, int, float, str, tuple[str, …] or a numpy array.

    Of a split model: the first part's path and metadata, and all parts' tensors (`gguf_parts`).
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """Parse and check the header of `path`; raises `ModelFileError` for everything that is wrong.

    The tensors' bytes are inside the file, aligned, and overlap nowhere.
    """
    data = map_file(path)
    cursor = _Cursor(path, data)
    if cursor.take(4) != _MAGIC:
        raise ModelFileError(path, "not a GGUF file: it doesn't start with 'GGUF'")
    version = cursor.u32()
    if version not in _VERSIONS:
        order = " (a big-endian file?)" if version & 0xFFFF == 0 else ""
        raise ModelFileError(path, f"GGUF version {version} is not supported, only 2 and 3{order}")
    tensor_count, metadata_count = cursor.u64(), cursor.u64()
    metadata: dict[str, Any] = {}
    for _ in range(metadata_count):
        key = cursor.string()
        if key in metadata:
            raise ModelFileError(path, f"metadata key {key!r} appears twice")
        metadata[key] = cursor.value(key)
    alignment = _alignment(path, metadata)
    places = [_read_place(cursor) for _ in _bounded(cursor, tensor_count)]
    start = -(-cursor.position // alignment) * alignment
    tensors = _locate(path, data, places, start, alignment)
    return GgufFile(path=path, metadata=metadata, tensors=tensors)


class _Cursor:
    """Reads the header front to back; mutates only its own position."""

    def __init__(self, path: Path, data: npt.NDArray[np.uint8]) -> None:
        self.path = path
        self.position = 0
        self._view = data.data
        self._size = len(data)
        self._limit = min(self._size, _HEADER_LIMIT_BYTES)

    def advance(self, count: int) -> int:
        """Step over `count` bytes; returns where they start."""
        start = self.position
        if count > self._limit - start:
            if self._limit < self._size:
                problem = f"the header is longer than {_HEADER_LIMIT_BYTES} bytes"
            else:
                problem = f"the file ends inside its header (needs {count} bytes at {start})"
            raise ModelFileError(self.path, f"{problem}: truncated or damaged")
        self.position = start + count
        return start

    def take(self, count: int) -> bytes:
        start = self.advance(count)
        return bytes(self._view[start : start + count])

    def u32(self) -> int:
        return _U32.unpack_from(self._view, self.advance(4))[0]

    def u64(self) -> int:
        return _U64.unpack_from(self._view, self.advance(8))[0]

    def string(self) -> str:
        start = self.position
        try:
            return self.take(self.u64()).decode()
        except UnicodeDecodeError:
            raise ModelFileError(self.path, f"the string at byte {start} is not UTF-8") from None

    def array(self, kind: np.dtype[Any], count: int) -> npt.NDArray[Any]:
        start = self.advance(kind.itemsize * count)
        return np.frombuffer(self._view, kind, count, start)

    def value(self, key: str) -> Any:
        kind = self.u32()
        if kind == GGUFValueType.STRING:
            return self.string()
        if kind == GGUFValueType.ARRAY:
            return self._list(key)
        return self.array(self._scalar(key, kind), 1)[0].item()

    def _list(self, key: str) -> tuple[str, ...] | npt.NDArray[Any]:
        kind, count = self.u32(), self.u64()
        if kind == GGUFValueType.STRING:
            return tuple(self.string() for _ in _bounded(self, count))
        return self.array(self._scalar(key, kind), count)

    def _scalar(self, key: str, kind: int) -> np.dtype[Any]:
        if kind not in _SCALARS:
            raise ModelFileError(self.path, f"metadata {key!r} has unsupported type {kind}")
        return _SCALARS[kind]


def _bounded(cursor: _Cursor, count: int) -> range:
    """`range(count)`, after the check that so many items, 8 bytes or more each, fit the file."""
    start = cursor.position
    cursor.advance(8 * count)
    cursor.position = start
    return range(count)


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    storage: StorageType
    offset: int
    size: int


def _read_place(cursor: _Cursor) -> _Place:
    path, name = cursor.path, cursor.string()
    dimensions = cursor.u32()
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise ModelFileError(path, f"{dimensions} dimensions, not 1 to 4", tensor=name)
    shape = tuple(cursor.u64() for _ in range(dimensions))[::-1]
    storage = _storage(path, name, cursor.u32())
    offset = cursor.u64()
    block = BLOCK_LAYOUT[storage][0]
    if 0 in shape or shape[-1] % block:
        problem = f"shape {list(shape)} is empty or its rows are no multiple of {block}"
        raise ModelFileError(path, f"{problem}, the block of {storage}", tensor=name)
    return _Place(name, shape, storage, offset, stored_bytes(storage, shape))


def _storage(path: Path, name: str, code: int) -> StorageType:
    try:
        known = GGMLQuantizationType(code).name
        return StorageType(known)
    except ValueError:
        kind = next((t.name for t in GGMLQuantizationType if t == code), f"number {code}")
        supported = ", ".join(StorageType)
        problem = f"storage type {kind} is not supported; supported: {supported}"
        raise ModelFileError(path, problem, tensor=name) from None


def _alignment(path: Path, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ModelFileError(path, f"general.alignment is {alignment!r}, not a power of two")
    return alignment


def _locate(
    path: Path, data: npt.NDArray[np.uint8], places: list[_Place], start: int, alignment: int
) -> dict[str, GgufTensor]:
    tensors: dict[str, GgufTensor] = {}
    previous_end = 0
    for place in sorted(places, key=lambda p: (p.offset, p.name)):
        name, begin = place.name, start + place.offset
        if place.offset % alignment:
            problem = f"offset {place.offset} is not aligned to {alignment} bytes"
            raise ModelFileError(path, problem, tensor=name)
        if begin + place.size > len(data):
            problem = f"ends at byte {begin + place.size} of a file of {len(data)}: truncated?"
            raise ModelFileError(path, problem, tensor=name)
        if place.offset < previous_end:
            raise ModelFileError(path, "its bytes overlap another tensor's", tensor=name)
        if name in tensors:
            raise ModelFileError(path, "appears twice", tensor=name)
        previous_end = place.offset + place.size
        raw = data[begin : begin + place.size]
        tensors[name] = GgufTensor(
            name=name, path=path, shape=place.shape, storage=place.storage, raw=raw
        )
    return tensors
