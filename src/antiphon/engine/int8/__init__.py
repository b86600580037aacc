"""Matrix products of int8 weights with int16 activations: exact, fast, the same on every path."""

from ..cpu_level import CpuLevel, cpu_levels
from ..kernel_cache import KERNEL_REVISION, PACKING_REVISION
from .gemm import matmul, multiply
from .packed_block import block_bytes, from_block, to_block
from .quantize import ACTIVATION_BITS, PackedWeight, QuantizedRows, pack, quantize_rows

__all__ = [
    "ACTIVATION_BITS",
    "KERNEL_REVISION",
    "PACKING_REVISION",
    "CpuLevel",
    "PackedWeight",
    "QuantizedRows",
    "block_bytes",
    "cpu_levels",
    "from_block",
    "matmul",
    "multiply",
    "pack",
    "quantize_rows",
    "to_block",
]
