"""Typed look-ups in a model's metadata; every surprise is an error that names file and key."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from antiphon.errors import ModelFileError

_JSON_LIMIT_BYTES = 256 * 1024**2


class Facts:
    """Key-value metadata of one file: GGUF metadata or a JSON object. Never mutates it.

    A key that is absent or null gives `default`; without a default it is an error. Keys are
    looked up, and named in errors, behind `prefix`.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    def get(self, key: str) -> Any:
        """The value as it is, or None."""
        return self._values.get(self._prefix + key)

    def inner(self, key: str) -> "Facts":
        """The object at `key`; empty if there is none."""
        value = self._or_default(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Facts(self.path, value)

    def over(self, defaults: Mapping[str, Any]) -> "Facts":
        """The same with `defaults` where keys are absent; null stays null."""
        return Facts(self.path, {**defaults, **self._values}, self._prefix)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer; a bool is none."""
        value = self._or_default(key, default)
        if type(value) is not int:
            raise self.wrong(key, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """An integer or a float (NaN and infinities included: the model's checks refuse them)."""
        value = self._or_default(key, default)
        if type(value) not in (int, float):
            raise self.wrong(key, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self.wrong(key, "a number of usual size") from None

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._or_default(key, default)
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        """Text."""
        value = self._or_default(key, default)
        if type(value) is not str:
            raise self.wrong(key, "text")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        value = self.get(key)
        if not isinstance(value, list) or not all(type(n) in (int, float) for n in value):
            raise self.wrong(key, "a list of numbers")
        try:
            return tuple(map(float, value))
        except OverflowError:
            raise self.wrong(key, "a list of numbers of usual size") from None

    def wrong(self, key: str, wanted: str) -> ModelFileError:
        """The error for a value that is missing or not `wanted`."""
        value, name = self.get(key), self._prefix + key
        if value is None:
            return ModelFileError(self.path, f"{name!r} is missing, must be {wanted}")
        return ModelFileError(self.path, f"{name!r} is {_shown(value)}, must be {wanted}")

    def refuse(self, key: str, wanted: str, accepted: tuple[Any, ...] = (None, False)) -> None:
        """Raise `wrong` unless the value is one of `accepted` (default: absent, null or false)."""
        value = self.get(key)
        if not any(value is one or (type(value) is type(one) and value == one) for one in accepted):
            raise self.wrong(key, wanted)

    def _or_default(self, key: str, default: Any) -> Any:
        value = self.get(key)
        return default if value is None else value


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; NaN, excessive nesting and anything but an object are errors."""
    try:
        if path.stat().st_size > _JSON_LIMIT_BYTES:
            raise ModelFileError(path, f"longer than {_JSON_LIMIT_BYTES} bytes")
        value = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise ModelFileError(path, "no such file") from None
    except OSError as error:
        raise ModelFileError(path, f"can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(path, f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFileError(path, "not a JSON object")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
