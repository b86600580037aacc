"""Dataclasses as JSON that people can read, and back without misunderstanding anything.

An unknown key, a missing one and a wrong type are all refused, each by its path. JSON has no
infinity: a target (`Slo`) or a bound (`Estimate`) that there is not is `null`, as is whatever may
be None; elsewhere `null` is refused.
"""

from dataclasses import fields, is_dataclass
from functools import cache
from math import inf
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from antiphon.core.goodput import Estimate
from antiphon.types import Slo

FORMAT = 1
"""The version of all files of a run's folder."""

T = TypeVar("T")


class WrongJson(Exception):
    """What is wrong, and where: at which path of keys."""


def encode(value: object) -> bytes:
    """One line of JSON, without its end. Half characters (lone surrogates) become `?`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value)))


def encode_file(value: object) -> bytes:
    """A whole file: the format's version, then the value's fields."""
    tree = {"format": FORMAT} | msgspec.json.decode(encode(value))
    return msgspec.json.format(msgspec.json.encode(tree), indent=1) + b"\n"


def decode(content: bytes, kind: type[T]) -> T:
    """What `encode` wrote. Raises `WrongJson`."""
    return _converted(_parsed(content), kind)


def decode_file(content: bytes, kind: type[T]) -> T:
    """What `encode_file` wrote. Raises `WrongJson`."""
    tree = _parsed(content)
    if not isinstance(tree, dict) or "format" not in tree:
        raise WrongJson("is not a file that antiphon wrote: it has no `format`")
    version = tree.pop("format")
    if version != FORMAT or isinstance(version, bool):
        raise WrongJson(f"format: is {version!r}, but this program reads {FORMAT}")
    return _converted(tree, kind)


def _parsed(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongJson(f"is not JSON: {error}") from None


def _converted(tree: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(_strict(tree, kind, "$"), kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WrongJson(str(error)) from None


def _strict(tree: Any, hint: Any, where: str) -> Any:
    """`tree` with targets in place of nulls. Raises `WrongJson` for a key that is none of ours."""
    if isinstance(tree, dict) and (kind := _dataclass_of(hint)) is not None:
        nested = _nested(kind)
        for name in tree:
            if name not in nested:
                raise WrongJson(f"unknown key {name!r} at {where}: known are {', '.join(nested)}")
        if kind in (Slo, Estimate):
            return {name: inf if value is None else value for name, value in tree.items()}
        for name, inner in nested.items():
            if inner is not None and name in tree:
                tree[name] = _strict(tree[name], inner, f"{where}.{name}")
        return tree
    if isinstance(tree, list) and (args := [arg for arg in get_args(hint) if arg is not Ellipsis]):
        return [
            _strict(value, args[min(place, len(args) - 1)], f"{where}[{place}]")
            for place, value in enumerate(tree)
        ]
    return tree


@cache
def _nested(kind: type) -> dict[str, Any]:
    """The fields of a dataclass; with its type where dataclasses are within, which need a look."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    return {name: hints[name] if _holds_dataclasses(hints[name]) else None for name in names}


def _holds_dataclasses(hint: Any) -> bool:
    return is_dataclass(hint) or any(_holds_dataclasses(arg) for arg in get_args(hint))


def _dataclass_of(hint: Any) -> type | None:
    """The dataclass that a JSON object is of: the hint, or the only one of a union."""
    choices = [arg for arg in (hint, *get_args(hint)) if is_dataclass(arg)]
    return choices[0] if choices and isinstance(choices[0], type) else None


def _without_surrogates(tree: Any) -> Any:
    match tree:
        case str():
            return tree.encode("utf-8", "replace").decode()
        case list() | tuple():
            return [_without_surrogates(value) for value in tree]
        case dict():
            return {name: _without_surrogates(value) for name, value in tree.items()}
        case _:
            return tree
