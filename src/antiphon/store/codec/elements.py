"""Numbers of KV pages inside kernels: bfloat16 (as uint16) or float32, read and written as float32.

Plain functions here are for kernels only: numba puts what fits the element's type in their place.
"""

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

_EXPONENT = np.uint32(0x7F800000)


def as_float(element: Any) -> Any:
    """The element as float32, exactly."""
    raise NotImplementedError


def as_element(value: Any, like: Any) -> Any:
    """`value` as an element of the type of `like`; bfloat16 to nearest, ties to even."""
    raise NotImplementedError


@overload(as_float, inline="always")
def _as_float(element: Any) -> Any:
    if element == types.uint16:
        return lambda element: np.uint32(np.uint32(element) << np.uint32(16)).view(np.float32)
    return lambda element: element


@overload(as_element, inline="always")
def _as_element(value: Any, like: Any) -> Any:
    if like == types.uint16:
        return lambda value, like: rounded(value)
    return lambda value, like: value


@njit(inline="always")
def rounded(value):
    """The nearest bfloat16 of a float32 that is no NaN."""
    bits = value.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + odd + np.uint32(0x7FFF)) >> np.uint32(16))


@njit(inline="always")
def below(value):
    """The largest bfloat16 that is not above a finite float32."""
    bits = value.view(np.uint32)
    away = np.uint32(0xFFFF) if bits >> np.uint32(31) else np.uint32(0)
    return np.uint16((bits + away) >> np.uint32(16))


@njit(inline="always")
def above(value):
    """The smallest bfloat16 that is not below a finite float32 ≥ 0."""
    return np.uint16((value.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16))


@njit(inline="always")
def whole(element):
    """A bfloat16 as float32."""
    return np.uint32(np.uint32(element) << np.uint32(16)).view(np.float32)


@njit(inline="always")
def not_finite(value):
    """1 for a NaN or an infinity, else 0; looks at bits only."""
    return np.uint32(value.view(np.uint32) & _EXPONENT) == _EXPONENT
