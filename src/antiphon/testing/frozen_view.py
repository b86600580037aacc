"""Any object as a value that can be compared and hashed: the state behind it, by reflection."""

from collections.abc import Collection, Hashable
from enum import Enum
from functools import cache
from types import FunctionType, MethodType
from typing import Any

_PLAIN = (type(None), bool, int, str, bytes, Enum)


def frozen_view(value: Any, now: float, ignored: Collection[str] = ()) -> Hashable:
    """`value` and all that it refers to, as nested tuples.

    Points in time (floats) are given relative to `now`, so that states that differ in nothing but
    when they are reached are one; what is past is one point (nothing may depend on how long ago
    something was). Attributes named in `ignored` are left out: counts and stamps that decide
    nothing. The order of dicts and lists matters, that of sets does not. Functions are named.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return ("t", round(max(value - now, 0.0), 6))
    if isinstance(value, (FunctionType, type)):
        return value.__qualname__
    if isinstance(value, MethodType):
        return value.__func__.__qualname__
    if isinstance(value, dict):
        return tuple(
            (frozen_view(key, now, ignored), frozen_view(entry, now, ignored))
            for key, entry in value.items()
        )
    if isinstance(value, set | frozenset):
        return frozenset(frozen_view(one, now, ignored) for one in value)
    if hasattr(value, "__iter__") and not hasattr(value, "__dict__"):
        return tuple(frozen_view(one, now, ignored) for one in value)
    fields = [
        (name, frozen_view(getattr(value, name), now, ignored))
        for name in _attributes(type(value), tuple(getattr(value, "__dict__", ())))
        if name not in ignored and hasattr(value, name)
    ]
    return (type(value).__qualname__, *fields)


@cache
def _attributes(kind: type, own: tuple[str, ...]) -> tuple[str, ...]:
    slots: list[str] = []
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__", ())
        slots += (names,) if isinstance(names, str) else names
    return (*slots, *own)
