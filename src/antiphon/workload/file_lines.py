"""Lines of a user's file, as they are asked for: never more than one in memory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from antiphon.errors import UsageError

MOST_LINE_CHARS = 2**22


class RowError(Exception):
    """What is wrong with a field of a line, and what it must be."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")


def json_row(line: str) -> dict[str, object]:
    """The JSON object that a line is. Raises `RowError`."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise RowError("row", f"is not JSON: {problem}") from problem
    return json_object("row", value)


def json_object(field: str, value: object) -> dict[str, object]:
    """`value`, if it is an object. Raises `RowError`."""
    if not isinstance(value, dict):
        raise RowError(field, "must be a JSON object")
    return cast("dict[str, object]", value)


def whole_number(field: str, value: object, *, low: int, high: int) -> int:
    """`value`, if it is a whole number in that range. Raises `RowError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RowError(field, f"must be a whole number from {low} to {high}, not {value!r:.40}")
    return value


def file_lines(file: Path, what: str) -> Iterator[str]:
    """Lines without their ends. `what` the file ought to be is for messages.

    Raises `UsageError`: not a regular file (it is read more than once), not readable, not UTF-8, or
    a line is far too long.
    """
    number = 0
    try:
        if file.exists() and not file.is_file():
            raise UsageError(f"{file}: can't be read: it is not a regular file")
        with file.open(encoding="utf-8") as opened:
            while line := opened.readline(MOST_LINE_CHARS):
                number += 1
                if len(line) == MOST_LINE_CHARS:
                    raise UsageError(
                        f"{file}, line {number}: longer than {MOST_LINE_CHARS} characters: "
                        f"this is no {what}"
                    )
                yield line.rstrip("\n")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{file}, after line {number}: not UTF-8 text: {problem}") from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise UsageError(f"{file}: can't be read: {reason}") from problem
