"""Whoever looks on while a load goes on, and how often they are told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

_TERMINAL_S, _LINES_S = 0.5, 10.0
"""How often a terminal is redrawn, and a line written where there is none."""


class Watcher(Protocol):
    """Whoever looks on. `is_live`: what is said replaces what was said before."""

    @property
    def is_live(self) -> bool:
        """Whether it may be spoken to several times a second."""
        ...

    def say(self, line: str) -> None:
        """This is what happens from now on."""
        ...

    def log(self, line: str) -> None:
        """This has happened."""
        ...


@contextlib.asynccontextmanager
async def shown(watcher: Watcher, line: Callable[[], str]) -> AsyncIterator[None]:
    """Say `line` again and again meanwhile: often on a terminal, seldom elsewhere."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(_TERMINAL_S if watcher.is_live else _LINES_S)
            watcher.say(line())

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
