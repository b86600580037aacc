"""A bar on stderr for work whose share is known: on a terminal, else nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str) -> Iterator[Callable[[float], None]]:
    """Shows how much of `what` is done: call what it gives with shares from 0 to 1."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn(what, markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as shown:
        task = shown.add_task("", total=1.0)
        yield lambda share: shown.update(task, completed=share)
