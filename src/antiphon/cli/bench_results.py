"""What `antiphon bench` leaves: a table or JSON on stdout, and a folder with a report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console, RenderableType

from antiphon.report import REPORT, SavedSearch, save_search, search_table, summary_table
from antiphon.report.strict_json import encode_file

from .progress import tell

if TYPE_CHECKING:
    from antiphon.runs import Measured

_WIDTH = 100
"""Columns where there is no terminal to ask."""


@dataclass(frozen=True, slots=True)
class Results:
    """Where results go: `folder` (None: none is kept), and stdout as a table or as JSON.

    `at_end` is called before anything is printed.
    """

    folder: Path | None = None
    as_json: bool = False
    at_end: Callable[[], None] = lambda: None

    def tell_run(self, measured: "Measured") -> None:
        """One run: what is printed, and its page, if there is a folder."""
        self.at_end()
        view = summary_table(measured.run, measured.summary, width=width())
        self._print(measured.summary, view)
        if self.folder is not None:
            measured.draw(self.folder)
            self._say_where()

    def tell_search(self, search: SavedSearch) -> None:
        """A search: what is printed, its file and its page."""
        self.at_end()
        found = search.goodput or search.slo_scale
        assert found is not None
        self._print(found, search_table(found))
        if self.folder is not None:
            save_search(self.folder, search)
            self._say_where()

    def _print(self, value: object, view: RenderableType) -> None:
        if self.as_json:
            typer.echo(encode_file(value).decode(), nl=False)
        else:
            show(view)

    def _say_where(self) -> None:
        tell(f"Report: {self.folder}/{REPORT}", err=True)


def show(view: RenderableType) -> None:
    """Print it on stdout, in colour if that is a terminal."""
    Console(width=width(), highlight=False).print(view)


def width() -> int:
    """Columns for tables."""
    console = Console()
    return console.width if console.is_terminal else _WIDTH
