"""The remote tier, driven: blocks are written behind, and read when nothing nearer has them.

`store.remote.RemoteTier` has the deadlines and the breaker. What a foreign system has is never
known for sure: what it took is said to be there until it is looked for in vain.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from antiphon.core.tiers import Slot
from antiphon.store.record import Page, RecordedBlock
from antiphon.store.remote import RemoteTier, RemoteVerified
from antiphon.types import BlockKey, KvChange, OfferedPage, Seconds, Tier, TierStats

from .host_memory import HeldBlock, HostBlocks
from .write_behind import WriteBehind

MOST_KEYS = 2**20
"""So many are said to be there; of more the oldest are not spoken of."""


class RemoteBlocks:
    """Which blocks are there, as far as it was said. `note` hears of each change. `run` writes,
    until cancelled."""

    def __init__(
        self,
        tier: RemoteTier,
        host: HostBlocks,
        *,
        note: Callable[[KvChange], None],
        most_keys: int = MOST_KEYS,
    ) -> None:
        self._tier = tier
        self._host = host
        self._note = note
        self._most_keys = most_keys
        self._keys: dict[BlockKey, None] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kv-remote-write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="kv-remote-read")
        self._behind = WriteBehind(host, self._writer, self._put, self._written, name="remote")

    def __contains__(self, key: BlockKey) -> bool:
        """Whether it was there when we last heard."""
        return key in self._keys

    @property
    def keys(self) -> Iterable[BlockKey]:
        """All that were there when we last heard. Valid until the next call of anything."""
        return self._keys

    def offer(self, key: BlockKey) -> None:
        """A block is in the host tier: write it when it is its turn."""
        if key not in self._keys:
            self._behind.offer(key)

    def prune(self) -> None:
        """What was cleared from the host tier is not to be written."""
        self._behind.prune()

    async def run(self) -> None:
        """See the class."""
        await self._behind.run()

    async def close(self) -> None:
        """Once `run` is over."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._tier.close)
        self._reader.shutdown(wait=False)
        self._writer.shutdown(wait=False)

    async def present(self, keys: Sequence[BlockKey], deadline: Seconds) -> int:
        """How many of the keys, from the first on, are there; 0 if it can't be said by then.

        Returns by the deadline, however many wait for the remote before this.
        """

        def count() -> int:
            return self._tier.present(keys) if self._host.clock() < deadline else 0

        work = asyncio.get_running_loop().run_in_executor(self._reader, count)
        await asyncio.wait([work], timeout=max(0.0, deadline - self._host.clock()))
        if not work.done():
            return 0
        for key in keys[: work.result()]:
            self._found(key)
        return work.result()

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
            self._gone(record.key)
        return pages

    async def remove(self, keys: Sequence[BlockKey]) -> None:
        """Forget these, after what is being written now. If it can't be asked they stay there."""
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._writer, self._tier.remove, keys))
        for key in keys:
            self._gone(key)

    async def clear(
        self, tenant: bytes | None, keys: Sequence[BlockKey] | None
    ) -> tuple[int, bool]:
        """Forget the tenant's among the keys (None: any), after what is being written now; how many
        it were, and whether all could be asked about. What earlier lives have put is meant too."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._writer, self._tier.clear, tenant, keys)
        gone, all_asked = await asyncio.shield(work)
        for key in gone:
            self._gone(key)
        return len(gone), all_asked

    async def verify(self, keys: Sequence[BlockKey]) -> RemoteVerified:
        """Read again and compare; what is wrong, or not there, is forgotten."""
        loop = asyncio.get_running_loop()
        verified = await asyncio.shield(loop.run_in_executor(self._reader, self._tier.verify, keys))
        for key in (*verified.wrong, *verified.absent):
            self._gone(key)
        return verified

    def stats(self) -> TierStats:
        """Counts, with what was never handed over."""
        stats = self._tier.stats()
        mine = (
            ("queue_full", self._behind.dropped_full),
            ("evicted_before_written", self._behind.dropped_gone),
        )
        return replace(stats, blocks=len(self._keys), dropped=(*stats.dropped, *mine))

    def _put(self, blocks: Sequence[HeldBlock]) -> tuple[bool, ...]:
        """On the writer's thread."""
        return self._tier.put(
            [(one.sealed.record, one.pages, one.sealed.checksums) for one in blocks]
        )

    def _written(self, blocks: Sequence[HeldBlock], kept: Sequence[bool]) -> None:
        for one, taken in zip(blocks, kept, strict=True):
            if taken:
                self._found(one.sealed.record.key)

    def _found(self, key: BlockKey) -> None:
        if key in self._keys:
            return
        if len(self._keys) >= self._most_keys:
            self._gone(next(iter(self._keys)))
        self._keys[key] = None
        self._note(KvChange(key, Tier.REMOTE, stored=True))

    def _gone(self, key: BlockKey) -> None:
        if key in self._keys:
            del self._keys[key]
            self._note(KvChange(key, Tier.REMOTE, stored=False))
