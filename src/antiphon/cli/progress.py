"""What a command is doing while a person waits: a spinner on a terminal, else plain lines."""

import os
import sys
from typing import Self

import typer
from rich.console import Console


def tell(line: str, *, err: bool = False) -> None:
    """Write a line to stdout (or stderr), if anybody still reads it.

    A reader that has gone (`antiphon serve | head`) decides nothing: what is meant for it goes to
    nowhere from then on, and the process lives as if it were read.
    """
    try:
        typer.echo(line, err=err)
    except OSError:
        stream = sys.stderr if err else sys.stdout
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Progress:
    """Says on stderr what happens now. Use it in `with`; `done` frees the terminal.

    `redraws_per_s`: each takes a millisecond or two of whoever has the interpreter.
    """

    def __init__(self, *, redraws_per_s: float = 12.5) -> None:
        self._status = None
        if sys.stderr.isatty():
            self._status = Console(stderr=True).status("", refresh_per_second=redraws_per_s)

    @property
    def is_live(self) -> bool:
        """Whether what is said goes over what was said before: on a terminal."""
        return self._status is not None

    def say(self, line: str) -> None:
        """`line` is what happens from now on."""
        if self._status is None:
            tell(line, err=True)
        else:
            self._status.update(line)

    def log(self, line: str) -> None:
        """`line` is for whoever looks for what went wrong, now or later."""
        if self._status is None:
            tell(line, err=True)
        else:
            self._status.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def done(self) -> None:
        """Nothing is waited for any more. No effect the second time."""
        if self._status is not None:
            self._status.stop()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done()
