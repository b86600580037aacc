"""Tables for terminals, all of one kind, and what is printed as plain text."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table


def empty_table(*left: str, right: Sequence[str] = (), last: str | None = None) -> Table:
    """An empty one: texts, then numbers, then a text that may be long."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in left:
        made.add_column(name)
    for name in right:
        made.add_column(name, justify="right")
    if last is not None:
        made.add_column(last, overflow="fold")
    return made


def printed(*views: RenderableType, width: int = 100) -> str:
    """The views as plain text, one below the other: for a pipe, a file or a test."""
    console = Console(width=width, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as captured:
        for view in views:
            console.print(view)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip() + "\n"
