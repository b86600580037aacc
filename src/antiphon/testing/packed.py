"""Mutable decision objects as values: packed bytes to go on from, and a view to compare by.

Two views are equal if the objects are equal but for what decides nothing. Values of `types` and
messages, which are immutable and make up most of what there is, are kept once and stand as numbers.
"""

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


class _Table:
    """Immutable values by number; equal ones have one number, as long as the process lives."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._values: list[Any] = []
        self._known: dict[int, int] = {}
        """By address: the values in it never go away."""

    def number(self, value: Any) -> int:
        """Of a frozen dataclass."""
        known = self._known.get(id(value))
        if known is not None:
            return known
        number = self._numbers.setdefault(self._content(value), len(self._values))
        # Every object is kept, equal or not, so that its address stays its own.
        self._known[id(value)] = number
        self._alive.append(value)
        if number == len(self._values):
            self._values.append(value)
        return number

    def _content(self, value: Any) -> Hashable:
        if isinstance(value, tuple):
            return tuple(map(self._content, value))
        if is_dataclass(value) and not isinstance(value, type | Enum):
            parts = (self._content(getattr(value, field.name)) for field in fields(value))
            return (type(value).__qualname__, *parts)
        return value

    def value(self, number: int) -> Any:
        """The first of the equal values of that number."""
        return self._values[number]


TABLE = _Table()
