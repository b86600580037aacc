"""Which instructions the kernels may use on this CPU."""

from enum import Enum
from functools import cache

import llvmlite.binding as llvm
from numba.core import config


class CpuLevel(Enum):
    """Instruction sets that there are kernels for, best first. All give the same bits."""

    AVX512 = "avx512"
    """AVX-512BW; with VNNI, LLVM fuses the multiply-add pair into one instruction."""
    AVX2 = "avx2"
    """AVX2; with AVX-VNNI fused as well."""
    GENERIC = "generic"
    """Vectors in LLVM's general form, lowered to whatever the CPU has (NEON, SSE2, scalars)."""


_NEEDS = {
    CpuLevel.AVX512: {"avx512f", "avx512bw", "avx512vl"},
    CpuLevel.AVX2: {"avx2"},
    CpuLevel.GENERIC: set[str](),
}


@cache
def cpu_levels() -> tuple[CpuLevel, ...]:
    """Levels that code compiled by numba may use here, best first; `GENERIC` is always the last.

    They follow the features that numba compiles for: the host's, or NUMBA_CPU_FEATURES if given.
    """
    chosen = vars(config)["CPU_FEATURES"]
    if chosen is not None:
        features = {name[1:] for name in chosen.split(",") if name.startswith("+")}
    else:
        features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    return tuple(level for level in CpuLevel if features >= _NEEDS[level])
