"""Matrix products of int8 weights with int16 activations: exact, fast, the same on every path."""

from .cpu_level import CpuLevel, cpu_levels
from .gemm import matmul, multiply, multiply_on
from .kernel_cache import KERNEL_REVISION
from .quantize import PackedWeight, QuantizedRows, pack, quantize_rows

__all__ = [
    "KERNEL_REVISION",
    "CpuLevel",
    "PackedWeight",
    "QuantizedRows",
    "cpu_levels",
    "matmul",
    "multiply",
    "multiply_on",
    "pack",
    "quantize_rows",
]
