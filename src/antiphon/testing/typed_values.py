"""Hypothesis strategy for any type that crosses the wire, from its annotations alone."""

import types as python_types
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(st.characters(codec="utf-8"), max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    None: st.none(),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of an annotated type, as far as messages use them."""
    kind = getattr(kind, "__supertype__", kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if len(items) == 2 and items[1] is Ellipsis:
            return st.lists(values(items[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, items))
    if get_origin(kind) in (Union, python_types.UnionType):
        return st.one_of(*map(values, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and hasattr(kind, "_fields"):  # a NamedTuple
        return st.builds(kind, *map(values, get_type_hints(kind).values()))
    assert isinstance(kind, type) and is_dataclass(kind), kind
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: values(hints[field.name]) for field in fields(kind)})
