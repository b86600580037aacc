"""Compiled code on disk, that several processes read and write at a time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .folder_lock import locked


def shared(compiled: Any) -> Any:
    """A function of numba's that is cached on disk: saved by one process while none loads.

    Numba keeps one index a function, which tells the file of each signature. It reads the index,
    takes the next number, writes the index, then the file. Of two processes that save different
    signatures at the same time both take the same number: the index that is written last names the
    file that is written last, which may be the machine code of the other signature. Who loads reads
    the index, then a file, and changes neither: any number may at a time. Returns the same
    function.
    """
    compiled._cache = _InTurns(compiled._cache)
    return compiled


class _InTurns:
    """A cache of numba's, used under a lock on its folder, which is made when it is needed."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """What was compiled for a signature, or None."""
        with self._turn(alone=False):
            return self._cache.load_overload(signature, target)

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep what was compiled for a signature."""
        with self._turn(alone=True):
            self._cache.save_overload(signature, code)

    @contextmanager
    def _turn(self, *, alone: bool) -> Iterator[None]:
        """Where the folder can't be made or locked: without one, as numba does it."""
        folder = Path(self._cache.cache_path)
        with ExitStack() as lock:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock.enter_context(locked(folder, alone=alone))
            except OSError:
                pass
            yield
