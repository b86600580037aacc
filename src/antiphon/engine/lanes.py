"""Sixteen floats as one numba value: explicit SIMD whose bits do not depend on the compiler.

A kernel must give a row the same bits whatever else is computed beside it. Loops that LLVM may or
may not vectorise, with tails that run other code, can't promise that; these can: each function is
one lane-wise IEEE operation, or a reduction in the fixed order that is written here. `fma` rounds
once on every machine. LLVM maps `<16 x float>` to one AVX-512, two AVX or four NEON registers.

Arrays are contiguous, or pointers; `at` counts elements; nothing checks bounds. Elements are
float32, or for `load` and `store` also bfloat16 (the upper half of a float32) as uint16: numba
compiles a kernel for the element type that it is called with. Arithmetic is always float32.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16

_F32 = ir.FloatType()
_I16 = ir.IntType(16)
_I32 = ir.IntType(32)
_VECTOR = ir.VectorType(_F32, LANES)
_INT_VECTOR = ir.VectorType(_I32, LANES)
_HALF_VECTOR = ir.VectorType(_I16, LANES)


class LanesType(types.Type):
    """Numba's type of a vector of `LANES` floats; it lives in registers, never in Python."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes_type = LanesType()


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type) -> None:
        super().__init__(dmm, fe_type, _VECTOR)


def element_pointer(context, builder, array_type, array, at):
    """Address of element `at` of an array, counted in memory, or behind a pointer."""
    if isinstance(array_type, types.CPointer):
        return builder.gep(array, [at])
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [at])


def is_bf16(array_type) -> bool:
    """Whether the elements are bfloat16. Raises `TypeError` if they are not float32 either."""
    if array_type.dtype not in (types.float32, types.uint16):
        raise TypeError(f"lanes hold float32 or bfloat16 (as uint16), not {array_type.dtype}")
    return array_type.dtype == types.uint16


def _emit_load(builder, pointer, bf16: bool):
    """Code that reads 16 elements at `pointer` as floats."""
    if not bf16:
        return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)
    halves = builder.load(builder.bitcast(pointer, _HALF_VECTOR.as_pointer()), align=2)
    return builder.bitcast(
        builder.shl(builder.zext(halves, _INT_VECTOR), _int_constant(16)), _VECTOR
    )


def _to_bf16(builder, value):
    """Upper halves, rounded to nearest, ties to even; a NaN stays one."""
    bits = builder.bitcast(value, _INT_VECTOR)
    upper = builder.lshr(bits, _int_constant(16))
    odd = builder.and_(upper, _int_constant(1))
    rounded = builder.add(bits, builder.add(odd, _int_constant(0x7FFF)))
    quiet = builder.or_(upper, _int_constant(0x40))
    nan = builder.fcmp_unordered("uno", value, value)
    chosen = builder.select(nan, quiet, builder.lshr(rounded, _int_constant(16)))
    return builder.trunc(chosen, _HALF_VECTOR)


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * LANES)


def _int_constant(value: int) -> ir.Constant:
    return ir.Constant(_INT_VECTOR, [value] * LANES)


def _pick(builder, first, second, indexes):
    """Lanes of the concatenation of two vectors, by index."""
    return builder.shuffle_vector(
        first, second, ir.Constant(ir.VectorType(_I32, len(indexes)), indexes)
    )


@_instruction
def pointer(typingctx, array, at):
    """The address of element `at`; stands for an array that begins there.

    Numba counts references to arrays, also as they are handed to functions that are written into
    the caller: in an inner loop that costs more than the arithmetic. It is not counted itself, so
    the array must outlive it: one that a kernel makes dies behind its last use, unless it is `held`
    where the last use of its pointers is over.
    """

    def codegen(context, builder, signature, args):
        return element_pointer(context, builder, signature.args[0], *args)

    return types.CPointer(array.dtype)(array, types.intp), codegen


@_instruction
def held(typingctx, array):
    """Nothing is done; but an array lives until here: see `pointer`."""

    def codegen(context, builder, signature, args):
        return context.get_dummy_value()

    return types.void(array), codegen


@_instruction
def load(typingctx, array, at):
    """Read 16 elements: `(float32[::1] or bfloat16, int) -> Lanes`. Any alignment."""

    def codegen(context, builder, signature, args):
        pointer = element_pointer(context, builder, signature.args[0], *args)
        return _emit_load(builder, pointer, is_bf16(signature.args[0]))

    return lanes_type(array, types.intp), codegen


@_instruction
def store(typingctx, array, at, value):
    """Write 16 elements: `(float32[::1] or bfloat16, int, Lanes) -> None`. Any alignment.

    bfloat16 is rounded to nearest, ties to even.
    """

    def codegen(context, builder, signature, args):
        pointer = element_pointer(context, builder, signature.args[0], args[0], args[1])
        value, align = args[2], 4
        if is_bf16(signature.args[0]):
            value, align = _to_bf16(builder, value), 2
        builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes_type), codegen


@_instruction
def splat(typingctx, value):
    """One float in all lanes."""

    def codegen(context, builder, signature, args):
        single = builder.insert_element(
            ir.Constant(_VECTOR, ir.Undefined), args[0], ir.Constant(_I32, 0)
        )
        return _pick(builder, single, single, [0] * LANES)

    return lanes_type(types.float32), codegen


@_instruction
def first(typingctx, value):
    """The first lane: `Lanes -> float32`."""

    def codegen(context, builder, signature, args):
        return builder.extract_element(args[0], ir.Constant(_I32, 0))

    return types.float32(lanes_type), codegen


@_instruction
def add(typingctx, a, b):
    """Lane-wise a + b."""
    return lanes_type(a, b), lambda context, builder, sig, args: builder.fadd(*args)


@_instruction
def sub(typingctx, a, b):
    """Lane-wise a − b."""
    return lanes_type(a, b), lambda context, builder, sig, args: builder.fsub(*args)


@_instruction
def mul(typingctx, a, b):
    """Lane-wise a · b."""
    return lanes_type(a, b), lambda context, builder, sig, args: builder.fmul(*args)


@_instruction
def div(typingctx, a, b):
    """Lane-wise a / b."""
    return lanes_type(a, b), lambda context, builder, sig, args: builder.fdiv(*args)


@_instruction
def fma(typingctx, a, b, c):
    """Lane-wise a · b + c, rounded once."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.fma.v{LANES}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)

    return lanes_type(a, b, c), codegen


@_instruction
def at_least(typingctx, value, floor):
    """Lane-wise maximum. A NaN in `value` stays."""

    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[1], args[0])

    return lanes_type(value, floor), codegen


@_instruction
def at_most(typingctx, value, ceiling):
    """Lane-wise minimum. A NaN in `value` stays."""

    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[1], args[0])

    return lanes_type(value, ceiling), codegen


@_instruction
def keep_first(typingctx, value, count, fill):
    """Lanes below `count` (an int) of `value`, the others of `fill`."""

    def codegen(context, builder, signature, args):
        narrow = builder.trunc(args[1], _I32)
        single = builder.insert_element(
            ir.Constant(_INT_VECTOR, ir.Undefined), narrow, ir.Constant(_I32, 0)
        )
        counts = _pick(builder, single, single, [0] * LANES)
        numbers = ir.Constant(_INT_VECTOR, list(range(LANES)))
        return builder.select(builder.icmp_signed("<", numbers, counts), args[0], args[2])

    return lanes_type(lanes_type, types.int64, lanes_type), codegen


def _fold(builder, vector, combine):
    """Reduce 16 lanes to one: halves onto each other, four times."""
    width = LANES
    while width > 1:
        width //= 2
        low = _pick(builder, vector, vector, list(range(width)))
        high = _pick(builder, vector, vector, list(range(width, 2 * width)))
        vector = combine(low, high)
    return builder.extract_element(vector, ir.Constant(_I32, 0))


@_instruction
def total(typingctx, value):
    """Sum of the lanes, halves onto each other: `Lanes -> float32`."""

    def codegen(context, builder, signature, args):
        return _fold(builder, args[0], builder.fadd)

    return types.float32(lanes_type), codegen


@_instruction
def peak(typingctx, value):
    """Largest lane: `Lanes -> float32`. NaN lanes may be lost."""

    def codegen(context, builder, signature, args):
        def larger(low, high):
            return builder.select(builder.fcmp_ordered("<", low, high), high, low)

        return _fold(builder, args[0], larger)

    return types.float32(lanes_type), codegen


@_instruction
def _power_of_two(typingctx, shifted):
    """2ⁿ for `shifted` = n + 1.5·2²³: n sits in the low mantissa bits and moves to the exponent."""

    def codegen(context, builder, signature, args):
        bits = builder.bitcast(args[0], _INT_VECTOR)
        exponent = builder.shl(bits, _int_constant(23))
        one = _int_constant(0x3F800000)
        return builder.bitcast(builder.add(exponent, one), _VECTOR)

    return lanes_type(shifted), codegen


_SHIFT = np.float32(12582912.0)
_LOG2_E = np.float32(1.44269504)
_LN2_HIGH = np.float32(-0.693359375)
_LN2_LOW = np.float32(2.12194440e-4)
_C2 = np.float32(0.5)
_C3 = np.float32(1.6666665459e-1)
_C4 = np.float32(4.1665795894e-2)
_C5 = np.float32(8.3334519073e-3)
_C6 = np.float32(1.3981999507e-3)
_C7 = np.float32(1.9875691500e-4)
_SMALLEST = np.float32(-87.0)
_LARGEST = np.float32(88.0)
_ONE = np.float32(1.0)


@njit(inline="always")
def exp(value):
    """Lane-wise eˣ within 2 ulp; x is clamped to −87 … 88, a NaN stays (Cephes `expf`)."""
    x = at_most(at_least(value, splat(_SMALLEST)), splat(_LARGEST))
    shifted = fma(x, splat(_LOG2_E), splat(_SHIFT))
    n = sub(shifted, splat(_SHIFT))
    rest = fma(n, splat(_LN2_LOW), fma(n, splat(_LN2_HIGH), x))
    tail = fma(splat(_C7), rest, splat(_C6))
    tail = fma(tail, rest, splat(_C5))
    tail = fma(tail, rest, splat(_C4))
    tail = fma(tail, rest, splat(_C3))
    tail = fma(tail, rest, splat(_C2))
    result = fma(tail, mul(rest, rest), add(rest, splat(_ONE)))
    return mul(result, _power_of_two(shifted))
