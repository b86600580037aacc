"""Blocks on their way from the host tier to a slower one: later, bounded, and by a thread."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from antiphon.types import BlockKey

from .host_memory import HeldBlock, HostBlocks

MOST_WAITING = 4096
_AT_ONCE = 8
"""Blocks that are held in the host tier while they are written."""

Result = TypeVar("Result")


class WriteBehind(Generic[Result]):
    """Writes what it is offered with `write`, on `thread`, and passes what came of it to `written`,
    on the event loop. What waits is not held: it may be evicted before its turn.

    `dropped_full` and `dropped_gone` count what was not written for want of room or of time.
    """

    def __init__(
        self,
        host: HostBlocks,
        thread: Executor,
        write: Callable[[Sequence[HeldBlock]], Result],
        written: Callable[[Sequence[HeldBlock], Result], None],
        *,
        name: str,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.dropped_full = 0
        self.dropped_gone = 0
        self._host = host
        self._thread = thread
        self._write = write
        self._written = written
        self._name = name
        self._most = most_waiting
        self._waiting: dict[BlockKey, None] = {}
        self._writing: frozenset[BlockKey] = frozenset()
        self._written_some = asyncio.Event()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """Blocks that wait."""
        return len(self._waiting)

    def offer(self, key: BlockKey) -> None:
        """Write this block when it is its turn, if it is in the host tier then."""
        if key in self._waiting:
            return
        if len(self._waiting) >= self._most:
            self.dropped_full += 1
            return
        self._waiting[key] = None
        self._idle.clear()
        self._news.set()

    def prune(self) -> None:
        """What was cleared from the host tier does not wait any more, even if it comes back."""
        for key in [key for key in self._waiting if key not in self._host.tier]:
            del self._waiting[key]

    async def quiet(self) -> None:
        """Return when nothing waits, and nothing is written."""
        await self._idle.wait()

    async def settled(self, keys: Sequence[BlockKey]) -> None:
        """Return when none of these waits, or is written, any more."""
        left = keys
        while left := [key for key in left if key in self._waiting or key in self._writing]:
            await self._written_some.wait()

    async def run(self) -> None:
        """Write, until cancelled: then what is being written is written, and no more."""
        while True:
            await self._news.wait()
            blocks = self._take()
            if blocks:
                self._writing = frozenset(one.sealed.record.key for one in blocks)
                await self._write_these(blocks)
                self._writing = frozenset()
            self._written_some.set()
            self._written_some = asyncio.Event()
            if not self._waiting:
                self._news.clear()
                self._idle.set()

    async def _write_these(self, blocks: Sequence[HeldBlock]) -> None:
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._write, blocks)
        try:
            result = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        finally:
            for one in blocks:
                self._host.release(one)
        self._written(blocks, result)

    def _take(self) -> list[HeldBlock]:
        blocks: list[HeldBlock] = []
        while self._waiting and len(blocks) < _AT_ONCE:
            key = next(iter(self._waiting))
            del self._waiting[key]
            held = self._host.hold(key, self._name)
            if held is None:
                self.dropped_gone += 1
            else:
                blocks.append(held)
        return blocks
