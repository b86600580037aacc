"""What holds for all tests."""

import os

# Tests may load torch before `antiphon.engine` does: see `engine/spin_limit.py`.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
