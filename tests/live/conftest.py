"""Kits of this folder and of `store` serve the tests of both."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "store")]
