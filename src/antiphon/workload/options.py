"""Options of workloads and arrivals: frozen dataclasses that can be written as text.

    NAME[:key=value,…]        sine:low=1,high=5,period=60s        multi-turn:turns=2-4,think=5s

A field annotated `Annotated[kind, Option(help, low, high)]` is an option. Its key is the field's
name without its unit (`think_s` is `think`, `rate_per_s` is `rate`). A value may itself have
options: what follows it and is no key of the outer ones belongs to it
(`fixed:input=lognormal:mean=512,p99=4000,output=64`).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from antiphon.core.number_text import number_text
from antiphon.errors import UsageError

from .lengths import Lengths, parse_lengths
from .number_text import (
    duration_text,
    parse_duration,
    parse_number,
    parse_whole,
    shown,
)

T = TypeVar("T")

MOST_CHARS = 4096
"""Longest text of a workload, its arrivals or its lengths."""
_YES_NO = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class Option:
    """What an option means, and from where to where its number may be."""

    help: str
    low: float = 0.0
    high: float = math.inf
    above_low: bool = False
    """Whether `low` itself is too little."""


@dataclass(frozen=True, slots=True)
class OptionLine:
    """An option as a list of them shows it."""

    key: str
    default: str
    """As one would write it; empty: it must be given, or is left open."""
    help: str


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    key: str
    kind: type
    option: Option
    default: object
    """`MISSING`: it must be given."""

    @property
    def is_time(self) -> bool:
        """Whether it is in seconds."""
        return self.name.endswith("_s") and not self.name.endswith("_per_s")


def option_lines(kind: type, defaults: Mapping[str, object]) -> tuple[OptionLine, ...]:
    """The options of a dataclass in order of its fields. `defaults` go before its own."""
    return tuple(
        OptionLine(
            field.key,
            _text(field, defaults.get(field.name, field.default)),
            field.option.help,
        )
        for field in _fields(kind)
    )


def split_name(text: str) -> tuple[str, str]:
    """What is before and after the first colon. Raises `UsageError` if it is far too long."""
    if len(text) > MOST_CHARS:
        raise UsageError(f"{shown(text)}: must have at most {MOST_CHARS} characters")
    name, _, rest = text.partition(":")
    return name.strip(), rest.strip()


def split_options(text: str, keys: Collection[str], what: str) -> dict[str, str]:
    """Key → value of `key=value,…`. Raises `UsageError` naming the part that is neither.

    A part whose key is none of `keys` goes on with the value before it if that has options of its
    own; else it is wrong.
    """
    found: dict[str, str] = {}
    last = ""
    for part in text.split(",") if text else ():
        key, equals, value = (side.strip() for side in part.partition("="))
        if key not in keys and last and ":" in found[last]:
            found[last] += f",{part.strip()}"
        elif not equals or not key or not value:
            raise UsageError(f"{what}: {shown(part)} must be an option such as key=value")
        elif key in found:
            raise UsageError(f"{what}: {key} is given twice: keep one")
        elif key not in keys:
            known = ", ".join(keys) or "none at all"
            raise UsageError(f"{what}: there is no option {shown(key)}: its options are {known}")
        else:
            found[key], last = value, key
    return found


def build(kind: type[T], what: str, text: str, defaults: Mapping[str, object]) -> T:
    """An object of the dataclass `kind` from the options in `text`, over `defaults`.

    Raises `UsageError` for an option that is unknown, wrong or missing; `what` begins its message.
    """
    known = {field.key: field for field in _fields(kind)}
    values = dict(defaults)
    for key, value in split_options(text, known, what).items():
        values[known[key].name] = _value(known[key], value, what)
    for field in known.values():
        if field.default is MISSING and field.name not in values:
            raise UsageError(f"{what}: {field.key} is missing: give {field.key}=…")
    return kind(**values)


def check(options: object, what: str) -> None:
    """Raise `UsageError` for the first number of `options` that is out of its range.

    `options` is a dataclass of options; for its `__post_init__`. Of a distribution, the ends count.
    """
    for field in _fields(type(options)):
        value = getattr(options, field.name)
        if isinstance(value, Lengths):
            ends = (value.low, value.high)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            ends = (value,)
        else:
            continue
        for end in ends:
            if not _is_within(field.option, end):
                wanted = _range(field.option)
                raise UsageError(f"{what}: {field.key} must be {wanted}, not {number_text(end)}")


def _is_within(option: Option, number: float) -> bool:
    return option.low <= number <= option.high and not (option.above_low and number == option.low)


def _fields(kind: type) -> list[_Field]:
    hints = get_type_hints(kind, include_extras=True)
    found: list[_Field] = []
    for field in fields(kind):  # type: ignore[arg-type]
        base, *notes = get_args(hints[field.name]) or (hints[field.name],)
        options = [note for note in notes if isinstance(note, Option)]
        if isinstance(base, UnionType):
            (base,) = (one for one in get_args(base) if one is not NoneType)
        if options:
            key = field.name.removesuffix("_s").removesuffix("_per")
            found.append(_Field(field.name, key, base, options[0], field.default))
    return found


def _value(field: _Field, text: str, what: str) -> object:
    kind, name = field.kind, f"{what}: {field.key}"
    if kind is Lengths:
        return parse_lengths(text, name)
    if kind is bool:
        wanted, value = "yes or no", _YES_NO.get(text)
    elif kind is int:
        wanted, value = f"a whole number {_range(field.option)}", parse_whole(text)
    elif field.is_time:
        wanted, value = "a time such as 30s, 200ms or 2min", parse_duration(text)
    elif kind is float:
        wanted, value = f"a number {_range(field.option)}", parse_number(text)
    elif issubclass(kind, StrEnum):
        wanted = " or ".join(kind)
        value = kind(text) if text in list(kind) else None
    else:
        wanted, value = "a name", kind(text)
    if value is None:
        raise UsageError(f"{name} must be {wanted}, not {shown(text)}")
    return value


def _range(option: Option) -> str:
    low, high = number_text(option.low), number_text(option.high)
    if option.above_low:
        return f"above {low}" if option.high == math.inf else f"above {low} and up to {high}"
    return f"from {low} on" if option.high == math.inf else f"from {low} to {high}"


def _text(field: _Field, value: Any) -> str:
    if value is MISSING or value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Lengths):
        return value.text
    if isinstance(value, str | Path):
        return str(value)
    if field.is_time:
        return duration_text(value)
    return number_text(value)
