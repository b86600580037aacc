"""Numbers and times as users write them, and as messages show them."""

import math
import re

from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.types import Seconds

_MOST_DIGITS = 15
_SHOWN_CHARS = 60
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(ms|s|m|min|h|d)?", re.ASCII)
_UNITS_S = {"ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_whole(text: str) -> int | None:
    """A whole number from 0 on; None if it is none."""
    plain = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if plain else None


def parse_number(text: str) -> float | None:
    """A finite number; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def parse_duration(text: str) -> Seconds | None:
    """Seconds of a time such as "60s", "1.5min", "200ms" or "90"; None if it is none."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _UNITS_S[match[2]] if match else None


def time_of(text: str, where: str, *, zero: bool = False) -> Seconds:
    """The time that `text` says, with its unit. 0 only if `zero` allows it.

    Raises `UsageError`, which begins with `where`: an option, a key, or a part of one.
    """
    found = parse_duration(text.strip())
    has_unit = text.strip()[-1:].isalpha()
    if found is not None and has_unit and (found > 0 or (zero and found == 0)):
        return found
    more = "0s or more" if zero else "more than 0"
    raise UsageError(f'{where} "{text}": must be a time such as 500ms, 30s, 10min or 2h, {more}')


def duration_text(seconds: Seconds) -> str:
    """As `parse_duration` reads it."""
    return f"{number_text(seconds)}s"


def shown(text: str) -> str:
    """What a user wrote, in quotes, not too long for a message."""
    short = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."
    return f'"{short}"'
