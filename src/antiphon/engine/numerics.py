"""The numerics id: two engines with equal ids compute equal bits."""

import platform
from pathlib import Path

import numba
import torch

KERNEL_REVISION = 1
"""Raised whenever a kernel, or the order of additions anywhere in the forward pass, changes."""


def numerics_id(dtype: str = "fp32", quantisation: str = "none") -> str:
    """Device kind, processor, instruction set, dtype, quantisation and kernel revisions.

    The matrix products come from torch's BLAS, which picks its kernels by processor maker and
    instruction set; so both, and torch's version, are part of the id.
    """
    parts = (
        "cpu",
        platform.machine().lower(),
        _processor_maker(),
        torch.backends.cpu.get_cpu_capability().lower().replace(" ", ""),
        dtype,
        quantisation,
        f"torch{torch.__version__.split('+')[0]}",
        f"numba{numba.__version__}",
        f"r{KERNEL_REVISION}",
    )
    return "-".join(parts)


def _processor_maker() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return "unknown"
    makers = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(makers, "unknown").lower()
