"""Compiled functions of this folder, kept on disk."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def _revision() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


_REVISION = _revision()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """`numba.njit` that releases the interpreter lock and caches on disk.

    Numba looks at the time stamp of the file that holds the function only, not at those of the
    intrinsics that it calls; hence the digest of all sources is part of the name it files it by.
    """
    function.__qualname__ = f"{function.__qualname__}_{_REVISION}"
    return njit(nogil=True, cache=True)(function)
