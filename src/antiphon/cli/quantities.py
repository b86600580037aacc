"""Times as people write them on a command line: `500ms`, `2s`, `1.5min`."""

from antiphon.errors import UsageError
from antiphon.types import Seconds


def seconds(text: str, where: str, *, zero: bool = False) -> Seconds:
    """The time that `text` says, with its unit. 0 only if `zero` allows it.

    Raises `UsageError`, which begins with `where`: an option, or a part of one.
    """
    from antiphon.workload import parse_duration

    found = parse_duration(text.strip())
    has_unit = text.strip()[-1:].isalpha()
    if found is not None and has_unit and (found > 0 or (zero and found == 0)):
        return found
    more = "0s or more" if zero else "more than 0"
    raise UsageError(f'{where} "{text}": must be a time such as 500ms, 30s, 10min or 2h, {more}')
