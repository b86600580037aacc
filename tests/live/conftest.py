"""Kits of this folder, of `store` and of the adapters serve the tests of all."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [
    str(_HERE),
    *(str(_HERE / sub) for sub in ("store", "network")),
    str(_HERE.parent / "adapters"),
]
