"""Bars on stderr for work whose share is known: on a terminal, else nothing but what is said."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from .progress import Progress

Say: TypeAlias = Callable[[str], None]
Advance: TypeAlias = Callable[[float], None]
"""Takes the share that is done, from 0 to 1."""


@contextmanager
def bar(what: str) -> Iterator[Advance]:
    """Shows how much of `what` is done."""
    with _bar() as shown:
        task = shown.add_task(what, total=1.0)
        yield lambda share: shown.update(task, completed=share)


@contextmanager
def stages() -> Iterator[tuple[Say, Advance]]:
    """Says what is done now, and from the first share on how much of it all: lines, or a bar.

    The bar is drawn when it advances, and by no thread meanwhile: nothing that is measured is
    disturbed.
    """
    with Progress() as progress:
        if not progress.is_live:
            progress.say("Starting")
            yield progress.say, lambda _: None
            return
        with _bar(auto_refresh=False) as shown:
            task = shown.add_task("", total=1.0, visible=False)

            def say(line: str) -> None:
                shown.update(task, description=line)
                if shown.tasks[0].visible:
                    shown.refresh()
                else:
                    progress.say(line)

            def advance(share: float) -> None:
                progress.done()
                shown.update(task, completed=share, visible=True, refresh=True)

            say("Starting")
            yield say, advance


def _bar(**options: Any) -> Any:
    """A bar of one task, described by it."""
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        **options,
    )
