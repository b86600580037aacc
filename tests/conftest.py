"""What holds for all tests, and for the processes that they start."""

import os
from pathlib import Path

# This tree's package comes first in child processes too.
_SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, *filter(None, [os.getenv("PYTHONPATH")])])

# Tests may load torch before `antiphon.engine` does: see `engine/spin_limit.py`.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
