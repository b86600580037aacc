"""Times as people write them on a command line: `500ms`, `2s`, `1.5min`."""

from antiphon.types import Seconds


def seconds(text: str, where: str, *, zero: bool = False) -> Seconds:
    """See `workload.time_of`, which is loaded when it is asked."""
    from antiphon.workload import time_of

    return time_of(text, where, zero=zero)
