"""Blocks that are read from one peer: those that are wanted at once, at one level, go in one call.

wanted ─┐                                   ┌─ PageClient ─ checked ─► sealed in its slot
wanted ─┼─► PoolRead ──► PoolLent (pages) ──┼─ EncodedPull ─ decoded ─► sealed in its slot
wanted ─┘                                   └─ not lent, late, other bytes ─► None: a miss
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from antiphon.core.store_pool import RAW, LevelBook, Sources
from antiphon.core.tiers import Slot
from antiphon.core.transfer import PathSpeed
from antiphon.errors import PeerError
from antiphon.live.store.host_memory import HostMemory
from antiphon.live.store.peers import Filled
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import BlockKey, LentBlock, OfferedPage, PagePull, PoolLent, Seconds

from .encoded_pull import Encoded, EncodedPull
from .pool_link import PoolLink

BLOCKS_AT_ONCE = 64
_ANSWER_SHARE = 0.5
"""Of a read's time: so long the peer may bring blocks up from its disk."""
_CODING_PATIENCE = 4.0
"""So many times what encoding and decoding should take may pass, beside the transfer."""

Pages = tuple[OfferedPage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    key: BlockKey
    slot: Slot
    deadline: Seconds
    level: str
    position: int
    filled: "asyncio.Future[Filled | None]"


class PeerReads:
    """From one life of a peer. `threads` wait for data; `client`, and `encoded` (None: the peer
    lends blocks as they are only), belong to this from now on."""

    def __init__(  # noqa: PLR0913  where blocks come from, where they go, and who counts
        self,
        link: PoolLink,
        client: PageClient,
        memory: HostMemory,
        sources: Sources,
        book: LevelBook,
        encoded: EncodedPull | None = None,
        *,
        threads: Executor,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        clock: Callable[[], Seconds],
    ) -> None:
        self.read_blocks = 0
        """How many came and were good."""
        self._link = link
        self._client = client
        self._encoded = encoded
        self._memory = memory
        self._sources = sources
        self._book = book
        self._threads = threads
        self._spawn = spawn
        self._clock = clock
        self._name = link.address.name
        self._wanted: list[_Wanted] = []
        self._running: set[asyncio.Task[None]] = set()
        self._speed = PathSpeed()
        self._last_bytes_per_s: float | None = None
        self._pulls = 0

    def bytes_per_s(self) -> float | None:
        """How fast the peer sends, as it was measured last; None: nothing has come yet."""
        return self._speed.bytes_per_s(self._clock()) or self._last_bytes_per_s

    async def read(
        self, key: BlockKey, slot: Slot, deadline: Seconds, level: str = RAW, position: int = 0
    ) -> Filled | None:
        """Have the block in a slot that is the caller's; None: it did not come by then. The slot is
        not touched any more when this returns. `position`: how many blocks are before it in its
        chain; a peer that can't encode lends the block as it is."""
        loop = asyncio.get_running_loop()
        level = level if self._encoded is not None else RAW
        wanted = _Wanted(key, slot, deadline, level, position, loop.create_future())
        self._wanted.append(wanted)
        if len(self._wanted) == 1:
            loop.call_soon(self._flush)
        return await asyncio.shield(wanted.filled)

    async def close(self) -> None:
        """The peer is gone: what is under way comes to nothing, or has come."""
        await asyncio.to_thread(self._client.close)
        if self._encoded is not None:
            await self._encoded.close()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _flush(self) -> None:
        wanted, self._wanted = self._wanted, []
        for level in dict.fromkeys(one.level for one in wanted):
            mine = [one for one in wanted if one.level == level]
            for first in range(0, len(mine), BLOCKS_AT_ONCE):
                task = self._spawn(self._read(mine[first : first + BLOCKS_AT_ONCE], level))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _read(self, batch: Sequence[_Wanted], level: str) -> None:
        """All of them end, whatever happens."""
        try:
            come = await self._come(batch, level)
            self.read_blocks += len(come)
            for one in batch:
                one.filled.set_result(come.get(one.key))
        finally:
            for one in batch:
                if not one.filled.done():
                    one.filled.set_result(None)

    async def _come(self, batch: Sequence[_Wanted], level: str) -> dict[BlockKey, Filled]:
        raw = level == RAW
        block_bytes = self._memory.slot_bytes if raw else self._book.block_bytes(level)
        size, began = len(batch) * block_bytes, self._clock()
        coding_s = 0.0 if raw else self._book.coding_s(level, len(batch))
        most_s = max(one.deadline for one in batch) - began
        patience_s = self._sources.patience_s(self._name, size) + _CODING_PATIENCE * coding_s
        ends_at = began + min(most_s, patience_s)
        self._sources.asked(self._name, size)
        try:
            answer = await self._lent(batch, level, ends_at)
            try:
                come, size_bytes = await self._pulled(batch, answer, level, ends_at)
            finally:
                if answer.lease is not None:
                    self._link.release(answer.lease)
        except PeerError:
            self._sources.failed(self._name, size, self._clock())
            return {}
        except BaseException:
            self._sources.missed(self._name, size)
            raise
        self._settle(size, size_bytes, len(come), len(answer.blocks), self._clock() - began)
        return come

    def _settle(self, size: int, came_bytes: int, come: int, lent: int, took_s: Seconds) -> None:
        """What the peer is worth from now on."""
        if come < lent:
            self._sources.failed(
                self._name, size, self._clock(), came_bytes=came_bytes, took_s=took_s
            )
        elif not lent:
            self._sources.missed(self._name, size)
        else:
            self._sources.came(self._name, size, took_s)

    async def _lent(self, batch: Sequence[_Wanted], level: str, ends_at: Seconds) -> PoolLent:
        """What of it the peer has, under which lease. Raises `PeerError`."""
        left_s = ends_at - self._clock()
        if left_s <= 0:
            raise PeerError("there is no time left to ask")
        positions = {one.key: one.position for one in batch}
        answer = await self._link.borrow(positions, _ANSWER_SHARE * left_s, left_s, level=level)
        if problem := self._wrong(positions, level, answer):
            if answer.lease is not None:
                self._link.release(answer.lease)
            raise PeerError(problem)
        return answer

    def _wrong(self, wanted: dict[BlockKey, int], level: str, answer: PoolLent) -> str:
        """Why the answer is none; empty: it is one."""
        keys = [block.key for block in answer.blocks]
        if len(keys) != len(set(keys)) or not wanted.keys() >= set(keys):
            return "it lends what nobody asked for"
        for block in answer.blocks:
            if block.encoded_bytes:
                if level == RAW or Encoded(block, 0).wrong(self._memory.slot_bytes):
                    return "it lends an encoded block that can't be one"
            elif len(block.pages) != self._memory.slot_pages:
                return "it lends what nobody asked for"
        if answer.lease is None and answer.blocks:
            return "it lends without a lease"
        return ""

    async def _pulled(
        self, batch: Sequence[_Wanted], answer: PoolLent, level: str, ends_at: Seconds
    ) -> tuple[dict[BlockKey, Filled], int]:
        """Those that came and are what was lent, and the bytes that were moved for them. Nothing is
        written any more when it returns."""
        slots = {one.key: one.slot for one in batch}
        raw = [block for block in answer.blocks if not block.encoded_bytes]
        encoded = [Encoded(one, slots[one.key]) for one in answer.blocks if one.encoded_bytes]
        timeout_s = max(0.001, ends_at - self._clock())
        both = await asyncio.gather(
            self._pull_raw(raw, slots, timeout_s),
            self._pull_encoded(encoded, level, answer.encode_s, timeout_s),
        )
        return {**both[0][0], **both[1][0]}, both[0][1] + both[1][1]

    async def _pull_raw(
        self, blocks: Sequence[LentBlock], slots: dict[BlockKey, Slot], timeout_s: Seconds
    ) -> tuple[dict[BlockKey, Filled], int]:
        if not blocks:
            return {}, 0
        self._began()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._pull, blocks, slots, timeout_s)
        come: dict[BlockKey, Filled] = {}
        try:
            come = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        finally:
            size_bytes = len(come) * self._memory.slot_bytes
            self._ended(size_bytes)
        self._book.came(RAW, len(come), size_bytes, 0.0)
        return come, size_bytes

    async def _pull_encoded(
        self, blocks: Sequence[Encoded], level: str, encode_s: Seconds, timeout_s: Seconds
    ) -> tuple[dict[BlockKey, Filled], int]:
        if not blocks or self._encoded is None:
            return {}, 0
        self._began()
        pulled = await self._encoded.pull(blocks, level, timeout_s, self._threads, self._ended)
        self._book.came(level, len(pulled.came), pulled.size_bytes, encode_s)
        lineage = self._book.lineage_of(level)
        come = {key: Filled(pages, lineage) for key, pages in pulled.came.items()}
        return come, pulled.size_bytes

    def _began(self) -> None:
        self._speed.began(self._clock())
        self._pulls += 1

    def _ended(self, size_bytes: int) -> None:
        now = self._clock()
        self._pulls -= 1
        self._speed.came(size_bytes, now, busy=self._pulls > 0)
        self._last_bytes_per_s = self._speed.bytes_per_s(now) or self._last_bytes_per_s

    def _pull(
        self, blocks: Sequence[LentBlock], slots: dict[BlockKey, Slot], timeout_s: Seconds
    ) -> dict[BlockKey, Filled]:
        """On a thread."""
        count = self._memory.slot_pages
        pulls = [
            PagePull(page, slots[block.key] * count + number)
            for block in blocks
            for number, page in enumerate(block.pages)
        ]
        good = self._client.pull(pulls, timeout_s)
        come: dict[BlockKey, Filled] = {}
        for at, block in enumerate(blocks):
            if all(good[at * count : (at + 1) * count]):
                first = slots[block.key] * count
                sealed = self._memory.region.seal(range(first, first + count))
                if [page.checksum for page in sealed] == [page.checksum for page in block.pages]:
                    come[block.key] = Filled(sealed)
        return come
