"""Converted weights on disk: the second start maps a file instead of dequantising.

One safetensors file a model, `NAME-rREVISION.safetensors`; its metadata holds each tensor's CRC-32.
It is written tensor by tensor to a temporary file beside it, synced and renamed, so that a file
of that name is whole, whoever writes at the same time and wherever a writer dies. A file that is
damaged all the same (its checksums are compared at every load) is a miss and is written anew.
The four models used last stay; deleting the folder is always safe and clears the cache.
"""

import json
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors import SafetensorError, safe_open

from antiphon.host import locked

_REVISION = 1
"""Raise it when the values or their order change: files of another revision are never read."""
_KEPT_FILES = 4
_SPARE_BYTES = 1024**3
_ABANDONED_S = 3600.0
_ALIGNMENT = 64
_READ_BYTES = 256 * 1024
_STORAGE = {torch.float32: "F32", torch.uint8: "U8"}
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CachedTensor:
    """A tensor that belongs in a file; `values()` computes it, for a miss."""

    name: str
    shape: tuple[int, ...]
    values: Callable[[], torch.Tensor]
    dtype: torch.dtype = torch.float32
    """float32 or uint8."""

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.dtype.itemsize * prod(self.shape)


class WeightCache:
    """The folder of converted weights. Safe to use from several processes at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str, wanted: Sequence[CachedTensor]) -> dict[str, torch.Tensor] | None:
        """The tensors of file `name`, memory-mapped; None if it is absent, damaged or different."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            tensors = _read(path, wanted)
        except (SafetensorError, OSError) as error:
            _LOG.warning("cached weights %s can't be read, they are made anew: %s", path, error)
            return None
        if tensors is None:
            _LOG.warning("cached weights %s are damaged, they are made anew", path)
            return None
        with suppress(OSError):
            os.utime(path)
        return tensors

    def store(self, name: str, wanted: Sequence[CachedTensor]) -> None:
        """Write file `name`, at most one tensor in memory at a time; evicts the least recent.

        Raises `OSError` if the disk is full or can't be written to; nothing is left behind then,
        nor when `values()` raises.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        size = sum(tensor.size for tensor in wanted)
        free = shutil.disk_usage(self._folder).free
        if free < size + _SPARE_BYTES:
            raise OSError(f"{self._folder} has {free >> 20} MiB free, {size >> 20} MiB are needed")
        descriptor, temporary = tempfile.mkstemp(dir=self._folder, suffix=".partial")
        try:
            with os.fdopen(descriptor, "wb") as file:
                _write(file, wanted)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self._path(name))
        finally:
            Path(temporary).unlink(missing_ok=True)
        self._evict(keep=self._path(name))

    @contextmanager
    def alone(self, name: str, seen: int | None) -> Iterator[bool]:
        """Waits until no other process is in here; yields whether one has made file `name` then.

        `seen`: the `inode` of that file before it was found to be of no use. Not needed for safety:
        it keeps several processes from computing the same at once. Raises `OSError` if the folder
        can't be made.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._folder):
            yield self.inode(name) != seen

    def inode(self, name: str) -> int | None:
        """Tells one file of that name from the next; None: there is none that can be looked at."""
        with suppress(OSError):
            return self._path(name).stat().st_ino
        return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}-r{_REVISION}.safetensors"

    def _evict(self, keep: Path) -> None:
        """Remove all but the most recent files, and what crashed writers left behind."""
        with suppress(OSError):
            used = {path: path.stat().st_mtime for path in self._folder.glob("*.safetensors")}
            used.pop(keep, None)
            latest = sorted(used, key=lambda path: (used[path], path.name), reverse=True)
            for path in latest[_KEPT_FILES - 1 :]:
                path.unlink(missing_ok=True)
            for path in self._folder.glob("*.partial"):
                if path.stat().st_mtime < time.time() - _ABANDONED_S:
                    path.unlink(missing_ok=True)


def _read(path: Path, wanted: Sequence[CachedTensor]) -> dict[str, torch.Tensor] | None:
    with safe_open(path, framework="pt") as file:
        checksums = file.metadata() or {}
        if set(file.keys()) != {tensor.name for tensor in wanted}:
            return None
        tensors = {tensor.name: file.get_tensor(tensor.name) for tensor in wanted}
    for tensor in wanted:
        loaded = tensors[tensor.name]
        if loaded.dtype != tensor.dtype or tuple(loaded.shape) != tensor.shape:
            return None
    return tensors if _file_checksums(path, wanted) == checksums else None


def _file_checksums(path: Path, wanted: Sequence[CachedTensor]) -> dict[str, str]:
    """Of the tensors as they lie in the file, which is read, not mapped.

    Touching a mapping would make the whole file resident, and most of an embedding never is.
    """
    with path.open("rb") as file:
        header_len = int.from_bytes(file.read(8), "little")
        places = json.loads(file.read(header_len))
        start = 8 + header_len

        def checksum(name: str) -> str:
            begin, end = places[name]["data_offsets"]
            found = 0
            for at in range(begin, end, _READ_BYTES):
                part = os.pread(file.fileno(), min(_READ_BYTES, end - at), start + at)
                found = zlib.crc32(part, found)
            return f"{found:08x}"

        # The largest first: no thread is left alone with it at the end.
        names = [tensor.name for tensor in sorted(wanted, key=lambda tensor: -tensor.size)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(names, pool.map(checksum, names), strict=True))


def _write(file: BinaryIO, wanted: Sequence[CachedTensor]) -> None:
    """The header is written twice: its checksums are known only after the last tensor."""
    blank = _header(wanted, {tensor.name: "0" * 8 for tensor in wanted})
    file.write(blank)
    checksums: dict[str, str] = {}
    for tensor in wanted:
        values = tensor.values()
        checksums[tensor.name] = _checksum(values)
        file.write(values.numpy().data)
    header = _header(wanted, checksums)
    file.seek(0)
    file.write(header)


def _header(wanted: Sequence[CachedTensor], checksums: dict[str, str]) -> bytes:
    """Length and JSON of a safetensors file, padded so that the values start aligned."""
    places: dict[str, object] = {"__metadata__": checksums}
    offset = 0
    for tensor in wanted:
        span = [offset, offset + tensor.size]
        storage = _STORAGE[tensor.dtype]
        places[tensor.name] = {"dtype": storage, "shape": tensor.shape, "data_offsets": span}
        offset += tensor.size
    text = json.dumps(places).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _checksum(values: torch.Tensor) -> str:
    return f"{zlib.crc32(values.numpy().data):08x}"
