"""The first use of compiled kernels, when several processes start at once."""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import numba
from numba.core import config

from antiphon.host import locked

from .kernel_cache import KERNEL_REVISION

_LOG = logging.getLogger(__name__)


@contextmanager
def first_use(cache_dir: Path | None, *what: str) -> Iterator[None]:
    """Around what compiles kernels: if nobody has come through yet with `what`, alone.

    So that several processes don't all compile the same: the others wait, then load what the first
    one compiled. A mark in `cache_dir/kernels` says that it was done. It may be wrong (somebody
    deleted numba's own files): then they all compile, which is slow and nothing else. None, or a
    folder that can't be used: nobody waits.
    """
    with ExitStack() as stack:
        mark = None
        if cache_dir is not None:
            mark = _mark(cache_dir / "kernels", what)
            try:
                mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not mark.exists():
                    stack.enter_context(locked(mark.parent))
            except OSError as error:
                _LOG.warning("%s can't be used: %s", mark.parent, error)
        if mark is not None and mark.exists():
            stack.close()
        yield
        if mark is not None:
            with suppress(OSError):
                mark.touch()


def _mark(folder: Path, what: tuple[str, ...]) -> Path:
    """Named after everything that numba compiles anew for, and where it keeps what it compiled."""
    kept = (str(Path(__file__).parent), vars(config)["CACHE_DIR"])
    parts = (KERNEL_REVISION, numba.__version__, sys.version, *kept, *what)
    return folder / blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
