"""Blocks that are read from one peer: those that are wanted at once go in one call.

wanted ─┐                                   ┌─ PageClient ─ checked ─► sealed in its slot
wanted ─┼─► PoolRead ──► PoolLent (pages) ──┤
wanted ─┘                                   └─ not lent, late, other bytes ─► None: a miss
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from antiphon.core.said_of_links import told_problem
from antiphon.core.store_pool import Sources, StorePool
from antiphon.core.tiers import Slot
from antiphon.errors import PeerError
from antiphon.live.path_uses import path_uses
from antiphon.live.store.host_memory import HostMemory
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import (
    BlockKey,
    LeaseId,
    LentBlock,
    OfferedPage,
    PagePull,
    PathUse,
    PeerState,
    PoolPeer,
    Seconds,
)

from .pool_link import PoolLink

BLOCKS_AT_ONCE = 64
_ANSWER_SHARE = 0.5
"""Of a read's time: so long the peer may bring blocks up from its disk."""

Pages = tuple[OfferedPage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    key: BlockKey
    slot: Slot
    deadline: Seconds
    pages: "asyncio.Future[Pages | None]"


class PeerReads:
    """From one life of a peer. `threads` wait for data; `client` belongs to this from now on."""

    def __init__(
        self,
        link: PoolLink,
        client: PageClient,
        memory: HostMemory,
        sources: Sources,
        *,
        threads: Executor,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        clock: Callable[[], Seconds],
    ) -> None:
        self._link = link
        self._client = client
        self._memory = memory
        self._sources = sources
        self._threads = threads
        self._spawn = spawn
        self._clock = clock
        self._name = link.address.name
        self._wanted: list[_Wanted] = []
        self._running: set[asyncio.Task[None]] = set()

    async def read(self, key: BlockKey, slot: Slot, deadline: Seconds) -> Pages | None:
        """Have the block in a slot that is the caller's; None: it did not come by then. The slot is
        not touched any more when this returns."""
        loop = asyncio.get_running_loop()
        wanted = _Wanted(key, slot, deadline, loop.create_future())
        self._wanted.append(wanted)
        if len(self._wanted) == 1:
            loop.call_soon(self._flush)
        return await asyncio.shield(wanted.pages)

    def paths(self) -> tuple[PathUse, ...]:
        """The ways to it."""
        return path_uses(self._client)

    async def close(self) -> None:
        """The peer is gone: what is under way comes to nothing, or has come."""
        await asyncio.to_thread(self._client.close)
        await asyncio.gather(*self._running, return_exceptions=True)

    def _flush(self) -> None:
        wanted, self._wanted = self._wanted, []
        for first in range(0, len(wanted), BLOCKS_AT_ONCE):
            task = self._spawn(self._read(wanted[first : first + BLOCKS_AT_ONCE]))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _read(self, batch: Sequence[_Wanted]) -> None:
        """All of them end, whatever happens."""
        try:
            come = await self._come(batch)
            self._link.read.blocks += len(come)
            self._link.read.bytes += len(come) * self._memory.slot_bytes
            for one in batch:
                one.pages.set_result(come.get(one.key))
        finally:
            for one in batch:
                if not one.pages.done():
                    one.pages.set_result(None)

    async def _come(self, batch: Sequence[_Wanted]) -> dict[BlockKey, Pages]:
        size, began = len(batch) * self._memory.slot_bytes, self._clock()
        most_s = max(one.deadline for one in batch) - began
        ends_at = began + min(most_s, self._sources.patience_s(self._name, size))
        self._sources.asked(self._name, size)
        try:
            lease, lent = await self._lent(batch, ends_at)
            try:
                come = await self._pulled(batch, lent, ends_at)
            finally:
                if lease is not None:
                    self._link.release(lease)
        except PeerError:
            self._failed(size)
            return {}
        except BaseException:
            self._sources.missed(self._name, size)
            raise
        if len(come) < len(lent):
            self._failed(size)
        elif not lent:
            self._sources.missed(self._name, size)
        else:
            self._sources.came(self._name, size, self._clock() - began)
        return come

    def _failed(self, size: int) -> None:
        self._link.read.failed += 1
        self._sources.failed(self._name, size, self._clock())

    async def _lent(
        self, batch: Sequence[_Wanted], ends_at: Seconds
    ) -> tuple[LeaseId | None, dict[BlockKey, LentBlock]]:
        """What of it the peer has, under which lease. Raises `PeerError`."""
        left_s = ends_at - self._clock()
        if left_s <= 0:
            raise PeerError("there is no time left to ask")
        keys = [one.key for one in batch]
        answer = await self._link.borrow(keys, _ANSWER_SHARE * left_s, left_s)
        lent = {block.key: block for block in answer.blocks}
        pages = self._memory.slot_pages
        problem = ""
        if not set(keys).issuperset(lent) or any(
            len(block.pages) != pages for block in lent.values()
        ):
            problem = "it lends what nobody asked for"
        elif answer.lease is None and lent:
            problem = "it lends without a lease"
        if problem:
            if answer.lease is not None:
                self._link.release(answer.lease)
            raise PeerError(problem)
        return answer.lease, lent

    async def _pulled(
        self,
        batch: Sequence[_Wanted],
        lent: dict[BlockKey, LentBlock],
        ends_at: Seconds,
    ) -> dict[BlockKey, Pages]:
        """Those that came and are what was lent. Nothing is written any more when it returns."""
        there = [(one, lent[one.key].pages) for one in batch if one.key in lent]
        if not there:
            return {}
        timeout_s = max(0.001, ends_at - self._clock())
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._pull, there, timeout_s)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    def _pull(
        self, there: Sequence[tuple[_Wanted, Pages]], timeout_s: Seconds
    ) -> dict[BlockKey, Pages]:
        """On a thread."""
        count = self._memory.slot_pages
        pulls = [
            PagePull(page, one.slot * count + number)
            for one, pages in there
            for number, page in enumerate(pages)
        ]
        good = self._client.pull(pulls, timeout_s)
        come: dict[BlockKey, Pages] = {}
        for at, (one, pages) in enumerate(there):
            if all(good[at * count : (at + 1) * count]):
                sealed = self._memory.region.seal(range(one.slot * count, (one.slot + 1) * count))
                if [page.checksum for page in sealed] == [page.checksum for page in pages]:
                    come[one.key] = sealed
        return come


def peer_view(link: PoolLink, reads: PeerReads | None, pool: StorePool, now: Seconds) -> PoolPeer:
    """The peer as this store sees it; `reads` None: it is away."""
    name = link.address.name
    state = PeerState.RESTING if pool.sources.rests(name, now) else PeerState.HERE
    return PoolPeer(
        name=name,
        address=str(link.address),
        state=state if link.present else PeerState.AWAY,
        blocks=pool.index.blocks_in_memory(name),
        read_blocks_total=link.read.blocks,
        read_bytes_total=link.read.bytes,
        failed_reads_total=link.read.failed,
        bytes_per_s=pool.sources.bytes_per_s(name),
        problem=told_problem(link.problem),
        paths=() if reads is None else reads.paths(),
    )
