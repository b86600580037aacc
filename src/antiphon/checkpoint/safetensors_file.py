"""Reads the header of a safetensors file: names, shapes and places of the tensors, no values."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from antiphon.errors import ModelFileError

from .tensor_entry import StorageType, TensorEntry, map_file, stored_bytes

_SUPPORTED = (StorageType.F32, StorageType.F16, StorageType.BF16)


def read_safetensors(path: Path) -> dict[str, TensorEntry]:
    """The file's tensors by name; raises `ModelFileError` if the file is damaged.

    The `safetensors` library checks the header (size, JSON, every range inside the file and none
    overlapping); it does not tell where the bytes are, so they are looked up in the header again.
    """
    data = map_file(path)
    try:
        with safe_open(path, framework="numpy"):
            pass
    except SafetensorError as error:
        problem = f"not a whole safetensors file ({error}): truncated or damaged?"
        raise ModelFileError(path, problem) from None
    except OSError as error:
        raise ModelFileError(path, f"can't be read: {error.strerror or error}") from None
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    header.pop("__metadata__", None)
    entries: dict[str, TensorEntry] = {}
    for name, facts in header.items():
        storage = _storage(path, name, facts["dtype"])
        shape = tuple(facts["shape"])
        begin, end = facts["data_offsets"]
        raw = data[start + begin : start + end]
        if not shape or 0 in shape or len(raw) != stored_bytes(storage, shape):
            raise ModelFileError(path, f"shape {list(shape)} doesn't fit its bytes", tensor=name)
        entries[name] = TensorEntry(
            name=name,
            source_name=name,
            path=path,
            shape=shape,
            storage=storage,
            raw=raw,
        )
    return entries


def _storage(path: Path, name: str, dtype: str) -> StorageType:
    if dtype not in _SUPPORTED:
        supported = ", ".join(_SUPPORTED)
        problem = f"storage type {dtype} is not supported; supported: {supported}"
        raise ModelFileError(path, problem, tensor=name)
    return StorageType(dtype)
