"""What holds for all tests, and for the processes that they start."""

import os
from pathlib import Path

# This tree's package comes first in child processes too.
_SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, *filter(None, [os.getenv("PYTHONPATH")])])

# Tests may load torch before `antiphon.engine` does: see `engine/spin_limit.py`.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# Of several processes that compile the same kernel for the first time, numba may give one the
# other's machine code: its index and its files are written one after the other. So each has its own
# cache.
if _worker := os.getenv("PYTEST_XDIST_WORKER"):
    os.environ["NUMBA_CACHE_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache/numba" / _worker)
