"""Matrix products of int8 weights with int16 activations: exact, fast, the same on every path."""

from ..cpu_level import CpuLevel, cpu_levels
from .fused_rows import norm_quantize, silu_quantize
from .gemm import matmul, multiply
from ..kernel_cache import KERNEL_REVISION
from .quantize import PackedWeight, QuantizedRows, pack, quantize_rows

__all__ = [
    "KERNEL_REVISION",
    "CpuLevel",
    "PackedWeight",
    "QuantizedRows",
    "cpu_levels",
    "matmul",
    "multiply",
    "norm_quantize",
    "pack",
    "quantize_rows",
    "silu_quantize",
]
