"""The keys of one TOML table, each of them known, read once and within its limits."""

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

from antiphon.core.number_text import number_text
from antiphon.types import Seconds

LONGEST_S: Seconds = 7 * 86400.0
_UNITS: Mapping[str, float] = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)")
_MOST_SHOWN = 60
"""Characters of a text, digits of a number."""


class WrongValueError(ValueError):
    """A value that can't be used: `key` and what is wrong, with the remedy."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")


class Table:
    """The keys of one TOML table, each of which may be read once and must be read.

    All methods raise `WrongValueError`.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._left = dict(fields)
        self._known: list[str] = []

    def take(self, key: str, default: Any = None) -> Any:
        """The raw value."""
        self._known.append(key)
        return self._left.pop(key, default)

    def text(self, key: str, default: str | None = None) -> str | None:
        """A string."""
        value = self.take(key, default)
        if value is not None and not isinstance(value, str):
            raise WrongValueError(key, f"{toml_text(value)} must be a text in quotes")
        return value

    def number(self, key: str, default: float | None, low: float, high: float) -> float | None:
        """A number of `low` … `high`."""
        value = self._within(key, default, low, high, "a number")
        return None if value is None else float(value)

    def count(self, key: str, default: int | None, low: int, high: int) -> int | None:
        """A whole number of `low` … `high`, to the last digit."""
        value = self._within(key, default, low, high, "a whole number")
        if isinstance(value, float) and not value.is_integer():
            raise WrongValueError(key, f"{number_text(value)} must be a whole number")
        return None if value is None else int(value)

    def _within(
        self, key: str, default: float | None, low: float, high: float, kind: str
    ) -> float | None:
        value = self.take(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or _is_endless(value):
            raise WrongValueError(key, f"{toml_text(value)} must be {kind}")
        if not low <= value <= high:
            span = f"{number_text(low)} to {number_text(high)}"
            raise WrongValueError(key, f"{toml_text(value)} must be {span}")
        return value

    def seconds(self, key: str, low: Seconds = 0.0) -> Seconds | None:
        """A time such as "500ms", "10s", "2m", "1h"."""
        value = self.take(key)
        if value is None:
            return None
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise WrongValueError(
                key, f'{toml_text(value)} must be a time such as "500ms", "10s" or "2m"'
            )
        found = float(match[1]) * _UNITS[match[2]]
        if not low <= found <= LONGEST_S:
            span = f"{number_text(low)}s to {number_text(LONGEST_S)}s"
            raise WrongValueError(key, f"{toml_text(value)} must be {span}")
        return found

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise WrongValueError(key, f"{toml_text(value)} must be true or false")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """One of these texts; without it the first."""
        value = self.take(key, choices[0])
        if value not in choices:
            known = ", ".join(f'"{one}"' for one in choices)
            raise WrongValueError(key, f"{toml_text(value)} must be one of {known}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; without it none."""
        value = self.take(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise WrongValueError(key, f'{toml_text(value)} must be a list of texts, such as ["…"]')
        return tuple(value)

    def table(self, key: str) -> Mapping[str, Any]:
        """A table in this one; without it an empty one."""
        value = self.take(key, {})
        if not isinstance(value, dict):
            raise WrongValueError(key, f"must be a table: [{key}]")
        return value

    def tables(self, key: str) -> Sequence[Mapping[str, Any]]:
        """Tables in this one, in order; without them none."""
        value = self.take(key, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise WrongValueError(key, f"must be tables: [[{key}]], in double brackets")
        return value

    def finish(self) -> None:
        """Nothing may be left."""
        for key in sorted(self._left):
            near = get_close_matches(key, self._known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(self._known)}"
            raise WrongValueError(key, f"no such key: {hint}")


def _is_endless(value: float) -> bool:
    """No number of a file: nan or infinity. Integers of any size are none of these."""
    return isinstance(value, float) and not isfinite(value)


def toml_text(value: object) -> str:
    """A value as one short piece of TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int() if abs(value) >= 10**_MOST_SHOWN:
            return "a huge number"
        case int() | float():
            return number_text(value)
        case str():
            short = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…"
            return json.dumps(short, ensure_ascii=False)
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return str(value)
