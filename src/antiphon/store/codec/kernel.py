"""Compiled functions of this folder, kept on disk: IEEE arithmetic, division by zero included."""

from pathlib import Path

from antiphon.store.compiled import compiler

_HERE = Path(__file__).parent
_NAMES = (
    *("blob", "coefficients", "elements", "escapes", "integers", "kernel", "lane_words"),
    *("matrix_product", "rans", "rows"),
)
_SOURCES = (*(_HERE / f"{name}.py" for name in _NAMES), _HERE.parent / "transfer/xxh3.py")
kernel = compiler(_SOURCES, error_model="numpy")
reducing_kernel = compiler(_SOURCES, error_model="numpy", fastmath={"nnan", "nsz"})
"""Least and largest values may be found in any order; what is compared must be no NaN."""
