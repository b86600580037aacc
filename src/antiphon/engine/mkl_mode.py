"""In which order MKL adds; imported before torch multiplies anything.

For a float32 product on Intel's processors MKL picks kernels, and with them orders of addition, by
the number of rows, and has threads share the sum over many inputs: a row's bits depend on what is
beside it. In the strict mode of its "conditional numerical reproducibility" they don't, at the same
speed on one thread. MKL reads the variable once, when it computes for the first time.

MKL knows that mode on Intel's processors only, from AVX2 on. On others nothing is set, and whole
multiples of rows are enough (see `projection`). A value that the user has set stays: with one that
is not strict the law may be broken. So the mode is part of the numerics id.
"""

import os
import re

from .cpu_level import CpuLevel, cpu_levels
from .processor import processor_maker

_VARIABLE = "MKL_CBWR"
_STRICT = {CpuLevel.AVX512: "AVX512,STRICT", CpuLevel.AVX2: "AVX2,STRICT"}


def strict_mode(maker: str, level: CpuLevel) -> str | None:
    """What the variable has to be for the kernels of `level`; None: it stays unset."""
    return _STRICT.get(level) if maker == "genuineintel" else None


def mode_name(mode: str) -> str:
    """A value of the variable in a numerics id; empty for none."""
    letters = re.sub(r"[^a-z0-9]", "", mode.lower())
    return f"mkl{letters}" if letters else ""


_mode = strict_mode(processor_maker(), cpu_levels()[0])
if _mode and not os.environ.get(_VARIABLE):
    os.environ[_VARIABLE] = _mode
MKL_MODE = mode_name(os.environ.get(_VARIABLE, ""))
"""This process's."""
