"""Numbers of KV pages inside kernels: bfloat16 (as uint16) or float32, read and written as float32.

Plain functions here are for kernels only: numba puts what fits the element's type in their place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

_EXPONENT = np.uint32(0x7F800000)


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: without the typing context."""
    return intrinsic(function)


@_instruction
def bits_of(typingctx, value):
    """The bits of a float32 as uint32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), codegen


@_instruction
def float_of(typingctx, bits):
    """The float32 that has these bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), codegen


def as_float(element):
    """The element as float32, exactly."""
    raise NotImplementedError


def as_element(value, like):
    """`value` as an element of the type of `like`; bfloat16 to nearest, ties to even."""
    raise NotImplementedError


@overload(as_float, inline="always")
def _as_float(element):
    if element == types.uint16:
        return lambda element: whole(element)
    return lambda element: element


@overload(as_element, inline="always")
def _as_element(value, like):
    if like == types.uint16:
        return lambda value, like: rounded(value)
    return lambda value, like: value


@njit(inline="always")
def rounded(value):
    """The nearest bfloat16 of a float32 that is no NaN."""
    bits = bits_of(value)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + odd + np.uint32(0x7FFF)) >> np.uint32(16))


@njit(inline="always")
def below(value):
    """The largest bfloat16 that is not above a finite float32."""
    bits = bits_of(value)
    away = np.uint32(0xFFFF) if bits >> np.uint32(31) else np.uint32(0)
    return np.uint16((bits + away) >> np.uint32(16))


@njit(inline="always")
def above(value):
    """The smallest bfloat16 that is not below a finite float32 ≥ 0."""
    return np.uint16((bits_of(value) + np.uint32(0xFFFF)) >> np.uint32(16))


@njit(inline="always")
def whole(element):
    """A bfloat16 as float32."""
    return float_of(np.uint32(np.uint32(element) << np.uint32(16)))


@njit(inline="always")
def not_finite(value):
    """Whether it is a NaN or an infinity; looks at bits only."""
    return (bits_of(value) & _EXPONENT) == _EXPONENT
