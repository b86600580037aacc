"""Lines of a user's file, as they are asked for: never more than one in memory."""

from collections.abc import Iterator
from pathlib import Path

from antiphon.errors import UsageError

MOST_LINE_CHARS = 2**22


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
