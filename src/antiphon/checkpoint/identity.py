"""Digests of model files: two machines that hold the same files get the same model identity."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import repeat
from pathlib import Path

from antiphon.errors import ModelFileError

_SEGMENT_BYTES = 64 * 1024**2
_READ_BYTES = 1024**2
_PERSON = b"antiphon-model-1"


def digest_files(files: Iterable[tuple[str, Path]]) -> bytes:
    """BLAKE2b-256 over (label, content digest) of `files`, in the order given.

    Labels, not paths, are hashed: a moved model keeps its identity. Each file is digested in
    segments of 64 MiB on all cores (about 1.3 GiB/s a core) without being kept in memory.
    """
    whole = blake2b(digest_size=32, person=_PERSON)
    for label, path in files:
        whole.update(len(label).to_bytes(8, "big") + label.encode() + _digest_file(path))
    return whole.digest()


def _digest_file(path: Path) -> bytes:
    try:
        starts = range(0, path.stat().st_size, _SEGMENT_BYTES)
        with ThreadPoolExecutor(max(1, min(len(starts), os.cpu_count() or 1))) as pool:
            segments = list(pool.map(_digest_segment, repeat(path), starts))
    except OSError as error:
        raise ModelFileError(path, f"can't be read: {error.strerror or error}") from None
    return blake2b(b"".join(segments), digest_size=32).digest()


def _digest_segment(path: Path, start: int) -> bytes:
    digest = blake2b(digest_size=32)
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        left = _SEGMENT_BYTES
        while left and (part := file.read(min(_READ_BYTES, left))):
            digest.update(part)
            left -= len(part)
    return digest.digest()
