"""Lanes that hold two 16-bit halves: bfloat16 as it lies in memory, or integers for `int16_tile`.

They are `Lanes` to numba, because only their bits count. Rounding to int16 is one multiply-add with
1.5·2²³ added: the low half of the sum's bits is then the integer nearest to the product (the even
one of two), for products below 2¹⁵ in magnitude.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import lanes as simd
from .lanes import LANES, element_pointer, lanes_type

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_WORDS = ir.VectorType(_I32, LANES)
_HALVES = ir.VectorType(_I16, 2 * LANES)
_ROW = ir.VectorType(_I16, LANES)

_SHIFT = np.float32(12582912.0)


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


def _words(value: int) -> ir.Constant:
    return ir.Constant(_WORDS, [value] * LANES)


@_instruction
def lower(typingctx, words):
    """The lower halves as bfloat16, made float."""

    def codegen(context, builder, signature, args):
        bits = builder.bitcast(args[0], _WORDS)
        return builder.bitcast(builder.shl(bits, _words(16)), _VECTOR)

    return lanes_type(words), codegen


@_instruction
def upper(typingctx, words):
    """The upper halves as bfloat16, made float."""

    def codegen(context, builder, signature, args):
        bits = builder.bitcast(args[0], _WORDS)
        return builder.bitcast(builder.and_(bits, _words(0xFFFF0000)), _VECTOR)

    return lanes_type(words), codegen


@_instruction
def paired(typingctx, low, high):
    """The lower halves of both: those of `low` stay below, those of `high` move up."""

    def codegen(context, builder, signature, args):
        low = builder.bitcast(args[0], _HALVES)
        high = builder.shl(builder.bitcast(args[1], _WORDS), _words(16))
        lanes = [at if at % 2 == 0 else at + 2 * LANES for at in range(2 * LANES)]
        mask = ir.Constant(ir.VectorType(_I32, 2 * LANES), lanes)
        both = builder.shuffle_vector(low, builder.bitcast(high, _HALVES), mask)
        return builder.bitcast(both, _VECTOR)

    return lanes_type(low, high), codegen


@_instruction
def larger_halves(typingctx, peaks, words):
    """For each half the larger of a peak and |half| of `words`, both bfloat16.

    Compared by their bits: infinity and NaN exceed all numbers.
    """

    def codegen(context, builder, signature, args):
        plain = builder.and_(builder.bitcast(args[1], _WORDS), _words(0x7FFF7FFF))
        peaks = builder.bitcast(args[0], _HALVES)
        return builder.bitcast(_larger(builder, builder.bitcast(plain, _HALVES), peaks), _VECTOR)

    return lanes_type(peaks, words), codegen


def _larger(builder, a, b):
    return builder.select(builder.icmp_signed(">", a, b), a, b)


@_instruction
def larger(typingctx, peaks, value):
    """Lane-wise the larger of a peak and |value|; infinity and NaN exceed all numbers."""

    def codegen(context, builder, signature, args):
        plain = builder.and_(builder.bitcast(args[1], _WORDS), _words(0x7FFFFFFF))
        return builder.bitcast(_larger(builder, plain, builder.bitcast(args[0], _WORDS)), _VECTOR)

    return lanes_type(peaks, value), codegen


@_instruction
def largest(typingctx, peaks):
    """The largest of lanes that are not negative; infinity and NaN exceed all numbers."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I32, [_WORDS])
        name = f"llvm.vector.reduce.smax.v{LANES}i32"
        fold = cgutils.get_or_insert_function(builder.module, kind, name)
        bits = builder.call(fold, [builder.bitcast(args[0], _WORDS)])
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(peaks), codegen


@_instruction
def store_halves(typingctx, array, at, words):
    """Write the lower halves of the lanes one after another: `(array, int, Lanes) -> None`.

    `at` counts halves, whatever the elements of the array."""

    def codegen(context, builder, signature, args):
        start = element_pointer(context, builder, signature.args[0], args[0], ir.Constant(_I64, 0))
        pointer = builder.gep(builder.bitcast(start, _I16.as_pointer()), [args[1]])
        halves = builder.trunc(builder.bitcast(args[2], _WORDS), _ROW)
        builder.store(halves, builder.bitcast(pointer, _ROW.as_pointer()), align=2)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes_type), codegen


@njit(inline="always")
def rounded(value, factor):
    """value · factor as an integer in the lower half; the upper half is of no use."""
    return simd.fma(value, factor, simd.splat(_SHIFT))


@_instruction
def _power_of_two(typingctx, shifted):
    """2ⁿ for `shifted` = n + 1.5·2²³."""

    def codegen(context, builder, signature, args):
        bits = builder.bitcast(args[0], _WORDS)
        exponent = builder.shl(bits, _words(23))
        return builder.bitcast(builder.add(exponent, _words(0x3F800000)), _VECTOR)

    return lanes_type(shifted), codegen


_C1 = np.float32(0.69312419)
_C2 = np.float32(0.24024099)
_C3 = np.float32(0.05590643)
_C4 = np.float32(0.00958285)
_LOWEST = np.float32(-126.0)
_ONE = np.float32(1.0)


@njit(inline="always")
def power_of_two(value):
    """Lane-wise 2ˣ, x at most 1; below −126 as at −126. A NaN stays."""
    x = simd.at_least(value, simd.splat(_LOWEST))
    shifted = simd.add(x, simd.splat(_SHIFT))
    rest = simd.sub(x, simd.sub(shifted, simd.splat(_SHIFT)))
    tail = simd.fma(simd.splat(_C4), rest, simd.splat(_C3))
    tail = simd.fma(tail, rest, simd.splat(_C2))
    tail = simd.fma(tail, rest, simd.splat(_C1))
    return simd.mul(simd.fma(tail, rest, simd.splat(_ONE)), _power_of_two(shifted))
