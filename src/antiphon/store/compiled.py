"""Compiled functions of the store's folders, kept on disk."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from numba import njit

from antiphon.host import shared


def compiler(sources: Iterable[Path], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` that releases the interpreter lock and caches on disk, with those `options`.

    Numba looks at the time stamp of the file that holds the function only, not at those of the
    functions and intrinsics that it calls; hence the digest of all `sources` that hold any is part
    of the name it files it by. Processes take turns at the cache.
    """
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(sources):
        digest.update(source.read_bytes())
    revision = digest.hexdigest()

    def kernel(function: Callable[..., Any]) -> Any:
        function.__qualname__ = f"{function.__qualname__}_{revision}"
        return shared(njit(nogil=True, cache=True, **options)(function))

    return kernel
