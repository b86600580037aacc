"""What holds for all tests, and for the processes that they start."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

# This tree's package comes first in child processes too.
_SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, *filter(None, [os.getenv("PYTHONPATH")])])

# Tests may load torch before `antiphon.engine` does: see `engine/spin_limit.py`.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start
# too: a process that is sent it would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of several processes that compile the same kernel for the first time, numba may give one the
# other's machine code: its index and its files are written one after the other. So each has its own
# cache.
if _worker := os.getenv("PYTEST_XDIST_WORKER"):
    os.environ["NUMBA_CACHE_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache/numba" / _worker)

_MEASURED = {Path(__file__).parent / part for part in ("core", "wire")}


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """`core/` is covered by tests of its own, and those that record and replay it. Whatever else
    runs it, such as a simulation, is there for other reasons, and takes twice as long if it is
    measured."""
    for item in items:
        if _MEASURED.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.no_cover)
