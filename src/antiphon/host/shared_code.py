"""Compiled code on disk, that several processes read and write at a time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .folder_lock import locked


def shared(compiled: Any) -> Any:
    """A function of numba's that is cached on disk: loaded and saved by one process at a time.

    Numba keeps one index a function, which tells the file of each signature. It reads the index,
    takes the next number, writes the index, then the file. Of two processes that save different
    signatures at the same time both take the same number: the index that is written last names the
    file that is written last, which may be the machine code of the other signature. Returns the
    same function.
    """
    compiled._cache = _OneAtATime(compiled._cache)
    return compiled


class _OneAtATime:
    """A cache of numba's, used under a lock on its folder, which is made when it is needed."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """What was compiled for a signature, or None."""
        with self._alone():
            return self._cache.load_overload(signature, target)

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep what was compiled for a signature."""
        with self._alone():
            self._cache.save_overload(signature, code)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Where the folder can't be made or locked: not alone, as numba does it."""
        folder = Path(self._cache.cache_path)
        with ExitStack() as lock:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock.enter_context(locked(folder))
            except OSError:
                pass
            yield
