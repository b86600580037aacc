"""The numerics id: two engines with equal ids compute equal bits."""

import platform

import numba
import torch

from .int8 import ACTIVATION_BITS
from .int8 import KERNEL_REVISION as INT8_REVISION
from .kv_memory import KvDtype
from .mkl_mode import MKL_MODE
from .processor import processor_maker

KERNEL_REVISION = 3
"""Raised whenever a kernel, or the order of additions anywhere in the forward pass, changes."""


_QUANTISATION = {"fp32": "none", "int8": f"w8a{ACTIVATION_BITS}.{INT8_REVISION}"}


def numerics_id(dtype: str, kv_dtype: KvDtype = KvDtype.FP32, *, long_rope: bool = False) -> str:
    """Device kind, processor, instruction set, dtype, quantisation, KV dtype, kernel revisions.

    In fp32 the matrix products come from torch's BLAS, which picks its kernels by processor maker,
    instruction set and mode (`mkl_mode`); so these, and torch's version, are part of the id. The
    int8 kernels give the same bits on every processor; the id names it all the same, because the
    angles of the rotary embedding come from the C library. Their revision is the digest of their
    sources. `long_rope`: the model turns by LongRoPE's long factors (`rope.runs_long`), which the
    model's identity doesn't say.
    """
    parts = (
        "cpu",
        *processor(),
        dtype,
        MKL_MODE if dtype == "fp32" else "",
        _QUANTISATION[dtype],
        f"kv{kv_dtype.value}",
        f"torch{torch.__version__.split('+')[0]}",
        f"numba{numba.__version__}",
        "longrope" if long_rope else "",
        f"r{KERNEL_REVISION}",
    )
    return "-".join(filter(None, parts))


def processor() -> tuple[str, str, str]:
    """Its architecture, its maker, and the instruction set that torch's BLAS uses."""
    capability = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "")
    return platform.machine().lower(), processor_maker(), capability
