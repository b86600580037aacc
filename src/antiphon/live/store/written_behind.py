"""A slower tier, driven: blocks are written to it later, bounded, and by a thread."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from antiphon.core.tiers import SlowerTier
from antiphon.live.started_threads import ended_unless, started_threads
from antiphon.types import BlockKey, KvChange, Tier

from .host_memory import HeldBlock, HostBlocks

Result = TypeVar("Result")


class WrittenBehind(ABC, Generic[Result]):
    """Carries out what `blocks` (`core.tiers.SlowerTier`) decides, with a thread that writes and
    one that reads, so that a fetch waits for no write. `note` hears of each change.

    `run` writes until it is cancelled: then what is being written is written, and no more.
    """

    def __init__(
        self,
        tier: Tier,
        host: HostBlocks,
        *,
        note: Callable[[KvChange], None],
        most_blocks: int | None = None,
    ) -> None:
        self.blocks = SlowerTier(tier, listen=note, most_blocks=most_blocks)
        self._name = tier.value
        self._host = host
        self._writer = started_threads(1, f"kv-{tier}-write")
        with ended_unless(self._writer):
            self._reader = started_threads(1, f"kv-{tier}-read")
        self._written_some = asyncio.Event()
        self._news = asyncio.Event()

    @abstractmethod
    def _write(self, blocks: Sequence[HeldBlock]) -> Result:
        """Write these, which stay where they are meanwhile. On the writer's thread."""

    @abstractmethod
    def _wrote(self, blocks: Sequence[HeldBlock], result: Result) -> None:
        """What came of it. On the event loop."""

    def __contains__(self, key: BlockKey) -> bool:
        """Whether it can probably be read."""
        return key in self.blocks

    @property
    def keys(self) -> Collection[BlockKey]:
        """All that can probably be read. Valid until the next call of anything."""
        return self.blocks.keys

    def offer(self, key: BlockKey) -> None:
        """A block is in the host tier: write it when it is its turn."""
        if self.blocks.offer(key):
            self._news.set()

    def prune(self) -> None:
        """What was cleared from the host tier is not to be written."""
        self.blocks.prune(self._host.tier)

    async def settled(self, keys: Sequence[BlockKey]) -> None:
        """Return when none of these waits to be written any more."""
        left = keys
        while left := self.blocks.unsettled(left):
            await self._written_some.wait()

    async def run(self) -> None:
        """See the class."""
        while True:
            await self._news.wait()
            held = self.blocks.take(lambda key: self._host.hold_exact(key, self._name))
            if held:
                await self._write_these(held)
            self._written_some.set()
            self._written_some = asyncio.Event()
            if not self.blocks.waiting:
                self._news.clear()

    async def _write_these(self, held: Sequence[HeldBlock]) -> None:
        work = asyncio.get_running_loop().run_in_executor(self._writer, self._write, held)
        try:
            result = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        finally:
            self.blocks.wrote()
            for one in held:
                self._host.release(one)
        self._wrote(held, result)

    def _dropped(self) -> tuple[tuple[str, int], ...]:
        """What was never handed over, by why."""
        return (
            ("queue_full", self.blocks.dropped_full),
            ("evicted_before_written", self.blocks.dropped_gone),
        )

    def _end_threads(self) -> None:
        """Nothing more is asked of them; what they do now they do to its end."""
        self._reader.shutdown(wait=False)
        self._writer.shutdown(wait=False)
