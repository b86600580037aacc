"""The remote tier, driven: blocks are written behind, and read when nothing nearer has them.

`store.remote.RemoteTier` has the deadlines and the breaker. What a foreign system has is never
known for sure: what it took is said to be there until it is looked for in vain.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from antiphon.core.tiers import Slot
from antiphon.live.slices import slices
from antiphon.store.record import Page, RecordedBlock
from antiphon.store.remote import RemoteTier, RemoteVerified
from antiphon.types import BlockKey, KvChange, OfferedPage, Seconds, Tier, TierStats

from .host_memory import HeldBlock, HostBlocks
from .written_behind import WrittenBehind

MOST_KEYS = 2**20
"""So many are said to be there; of more the oldest are not spoken of."""
MOST_LOOKED_AT = 2**18
"""Blocks that are looked for at the start: some seconds of a remote nearby."""


class RemoteBlocks(WrittenBehind[tuple[bool, ...]]):
    """Which blocks are there, as far as it was said."""

    def __init__(
        self,
        tier: RemoteTier,
        host: HostBlocks,
        *,
        note: Callable[[KvChange], None],
        most_keys: int = MOST_KEYS,
    ) -> None:
        super().__init__(Tier.REMOTE, host, note=note, most_blocks=most_keys)
        self._tier = tier
        self._forgetting = asyncio.Lock()
        """Nobody is told that something is there while it is being forgotten."""

    async def run(self) -> None:
        """See `WrittenBehind`. Beside, it looks what earlier lives have put there."""
        await asyncio.gather(self._look_around(), super().run())

    async def _look_around(self) -> None:
        """Once, a part at a time, so that fetches wait for little. What can't be asked now is found
        when somebody looks for it."""
        loop, place, found = asyncio.get_running_loop(), 0, 0
        while found < MOST_LOOKED_AT:
            async with self._forgetting:
                said = await loop.run_in_executor(self._reader, self._tier.some, place)
                if said is None:
                    return
                place, keys = said
                for key in keys:
                    self.blocks.found(key)
            found += len(keys)
            if not place:
                return

    async def close(self) -> None:
        """Once `run` is over."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._tier.close)
        self._end_threads()

    async def present(self, keys: Sequence[BlockKey], deadline: Seconds) -> int:
        """How many of the keys, from the first on, are there; 0 if it can't be said by then.

        Returns by the deadline, however many wait for the remote before this.
        """

        def ask() -> Sequence[bool]:
            return (self._tier.exist(keys) or ()) if self._host.clock() < deadline else ()

        work = asyncio.get_running_loop().run_in_executor(self._reader, ask)
        await asyncio.wait([work], timeout=max(0.0, deadline - self._host.clock()))
        there = work.result() if work.done() else ()
        count = next((n for n, is_there in enumerate(there) if not is_there), len(there))
        for key in keys[:count]:
            self.blocks.found(key)
        self._forget([key for key, is_there in zip(keys, there, strict=False) if not is_there])
        return count

    def _forget(self, absent: Sequence[BlockKey]) -> int:
        """These are not there: how many were said to be. What is in memory is written again."""
        believed = [key for key in absent if key in self.blocks]
        self.blocks.gone(believed)
        for key in believed:
            if key in self._host.tier:
                self.offer(key)
        return len(believed)

    async def forget_absent(
        self, keys: Sequence[BlockKey]
    ) -> tuple[Collection[BlockKey], int] | None:
        """Forget those that are not there; which they are, and how many of them were said to be.
        None: it can't be said of all, and nothing is forgotten."""
        loop = asyncio.get_running_loop()
        async with self._forgetting:
            work = loop.run_in_executor(self._reader, self._tier.absent, keys)
            absent = await asyncio.shield(work)
            if absent is None:
                return None
            count = 0
            async for part in slices(absent):
                count += self._forget(part)
        return frozenset(absent), count

    async def fill(
        self, record: RecordedBlock, slot: Slot, deadline: Seconds
    ) -> tuple[OfferedPage, ...] | None:
        """Read a block into a slot that is the caller's; None: it could not be had, or it was not
        its turn by the deadline. The slot is not touched any more when this returns."""
        late = False

        def read(into: Sequence[Page]) -> bool:
            nonlocal late
            late = self._host.clock() >= deadline
            return not late and self._tier.get([record.key], [into])[0]

        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._reader, self._host.memory.fill, slot, read)
        pages = await asyncio.shield(work)
        if pages is None and not late:
            self.blocks.gone([record.key])
        return pages

    async def remove(self, keys: Sequence[BlockKey]) -> None:
        """Forget these, after what is being written now. If it can't be asked they stay there."""
        loop = asyncio.get_running_loop()
        async with self._forgetting:
            await asyncio.shield(loop.run_in_executor(self._writer, self._tier.remove, keys))
            self.blocks.gone(keys)

    async def clear(
        self, tenant: bytes | None, keys: Sequence[BlockKey] | None
    ) -> tuple[int, bool]:
        """Forget the tenant's among the keys (None: any), after what is being written now; how many
        it were, and whether all could be asked about. What earlier lives have put is meant too."""
        loop = asyncio.get_running_loop()
        believed = [key for key in (self.keys if keys is None else keys) if key in self.blocks]
        async with self._forgetting:
            work = loop.run_in_executor(self._writer, self._tier.clear, tenant, keys)
            gone, all_asked = await asyncio.shield(work)
            everybodys = believed if all_asked and tenant is None else ()
            for known in (gone, everybodys):
                async for part in slices(known):
                    self.blocks.gone(part)
        if tenant is not None:
            await self.forget_absent([key for key in believed if key in self.blocks])
        return len(gone), all_asked

    async def verify(self, keys: Sequence[BlockKey]) -> RemoteVerified:
        """Read again and compare; what is wrong, or not there, is forgotten."""
        loop = asyncio.get_running_loop()
        verified = await asyncio.shield(loop.run_in_executor(self._reader, self._tier.verify, keys))
        self.blocks.gone((*verified.wrong, *verified.absent))
        return verified

    def stats(self) -> TierStats:
        """Counts, with what was never handed over."""
        stats = self._tier.stats()
        dropped = (*stats.dropped, *self._dropped())
        return replace(stats, blocks=len(self.keys), dropped=dropped)

    def _write(self, blocks: Sequence[HeldBlock]) -> tuple[bool, ...]:
        return self._tier.put(
            [(one.sealed.record, one.pages, one.sealed.checksums) for one in blocks]
        )

    def _wrote(self, blocks: Sequence[HeldBlock], result: tuple[bool, ...]) -> None:
        for one, taken in zip(blocks, result, strict=True):
            if taken:
                self.blocks.found(one.sealed.record.key)
