"""No broken law stays unheard: what an event loop's callbacks raise reaches the process.

A timer, a protocol's callback or a forgotten task has no caller that an exception could reach: the
loop would log it and go on, with state that can't be trusted any more.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from antiphon.errors import BugError


def guard_loop(on_bug: Callable[[BugError], None]) -> None:
    """From now on the running loop gives each `BugError` that nobody caught to `on_bug`.

    It is logged first, as all else that nobody caught. `on_bug` must see to it that the process
    ends; it may be called more than once.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, BugError):
            on_bug(error)

    asyncio.get_running_loop().set_exception_handler(handle)
