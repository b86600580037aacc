"""Mutable decision objects as values: bytes to go on from, and a view to compare by.

Immutable values (frozen dataclasses, enums), which make up most of what there is, are kept once in
a table and stand as numbers: equal ones have the same. So packing is cheap, and messages compare.
"""

import pickle
from collections.abc import Collection, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from io import BytesIO
from typing import Any, NewType

Number = NewType("Number", int)
"""Of an immutable value."""


class Table:
    """Immutable values by number, for as long as the process lives."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, Number] = {}
        self._values: list[Any] = []
        self._known: dict[int, Number] = {}
        """By address: of all values that were ever asked for, which are kept for that."""
        self._kept: list[Any] = []

    def number(self, value: Any) -> Number:
        """Equal values (also those that are compared by identity elsewhere) have one number."""
        known = self._known.get(id(value))
        if known is not None:
            return known
        number = self._numbers.setdefault(_content(value), Number(len(self._values)))
        if number == len(self._values):
            self._values.append(value)
        self._known[id(value)] = number
        self._kept.append(value)
        return number

    def value(self, number: Number) -> Any:
        """The first of the equal values that have that number."""
        return self._values[number]


def _content(value: Any) -> Hashable:
    if isinstance(value, tuple):
        return tuple(map(_content, value))
    if is_frozen(type(value)) and not isinstance(value, Enum):
        parts = (_content(getattr(value, field.name)) for field in fields(value))
        return (type(value).__qualname__, *parts)
    return (type(value).__qualname__, value)


@cache
def is_frozen(kind: type) -> bool:
    """Are its values immutable, and worth a number?"""
    if issubclass(kind, Enum):
        return True
    return is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # pyright: ignore[reportAttributeAccessIssue]


TABLE = Table()


def value_of(number: Number) -> Any:
    """For unpickling: see `Table.value`."""
    return TABLE.value(number)


class _Packer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if is_frozen(type(obj)):
            return value_of, (TABLE.number(obj),)
        return NotImplemented


class _Viewer(pickle.Pickler):
    def __init__(self, file: BytesIO, ignored: Mapping[type, Collection[str]]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        # Without a memo, bytes tell of values alone, and not of who shares what.
        self.fast = True
        self._ignored = ignored

    def reducer_override(self, obj: Any) -> Any:
        if is_frozen(type(obj)):
            return value_of, (TABLE.number(obj),)
        ignored = self._ignored.get(type(obj))
        if ignored is None:
            return NotImplemented
        names = getattr(obj, "__dict__", None) or type(obj).__slots__
        return tuple, ([getattr(obj, name) for name in names if name not in ignored],)


def pack(value: Any) -> bytes:
    """All of `value`, with what its parts share. It must be a tree but for sharing."""
    file = BytesIO()
    _Packer(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def unpack(packed: bytes) -> Any:
    """A copy of what was packed. Only for bytes of `pack` in this process."""
    return pickle.loads(packed)  # noqa: S301


def view(value: Any, ignored: Mapping[type, Collection[str]]) -> bytes:
    """Equal for equal values. `ignored` names attributes, by type, that decide nothing."""
    file = BytesIO()
    _Viewer(file, ignored).dump(value)
    return file.getvalue()
