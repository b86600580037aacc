"""Long work on an event loop, a slice at a time: others are served between."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

AT_ONCE = 1024
"""Blocks that somebody is told of: about a millisecond."""

T = TypeVar("T")


async def slices(items: Sequence[T], size: int = AT_ONCE) -> AsyncIterator[Sequence[T]]:
    """All of `items`, in order, in parts. Between them everything may change."""
    for at in range(0, len(items), size):
        if at:
            await asyncio.sleep(0)
        yield items[at : at + size]
