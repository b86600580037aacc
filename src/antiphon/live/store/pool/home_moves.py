"""Blocks on their way home: told to the stores that are home to them, and read from those that have
put them. In the background, bounded, and never in a put's way.

    StorePool.placing ──► place ── PoolPlace ──► the home's `asked` ──► take_in ─ read ─► its memory
"""

import asyncio
from collections.abc import Callable, Sequence

from antiphon.core.store_pool import Placing
from antiphon.core.tiers import PutQueue, Waiting
from antiphon.live.store.tiered_blocks import TieredBlocks
from antiphon.store.record import RecordedBlock
from antiphon.types import BlockKey, PlacedBlock, PutBlock, Seconds, StoreName

from .pool_link import PoolLink

TAKEN_AT_ONCE = 16
"""Blocks that are read at the same time because this store is home to them."""
_TAKE_IN_S: Seconds = 5.0
_TELL_S: Seconds = 5.0
"""A home that does not read for so long is told nothing of what waits for it."""
_HOLDER = "pool"


class HomeMoves:
    """Of one store. `place` and `take_in` run until cancelled, once `attach` was called."""

    def __init__(self, placing: Placing, link_of: Callable[[StoreName], PoolLink | None]) -> None:
        self.taken_blocks = 0
        """How many came because this store is home to them."""
        self._placing = placing
        self._link_of = link_of
        self._blocks: TieredBlocks | None = None
        self._asked: PutQueue[StoreName] = PutQueue()
        self._placed_here: dict[BlockKey, PlacedBlock] = {}
        self._from: dict[BlockKey, StoreName] = {}
        self._telling: set[StoreName] = set()
        self._to_place, self._to_take = asyncio.Event(), asyncio.Event()

    def attach(self, blocks: TieredBlocks) -> None:
        """These are the store's."""
        self._blocks = blocks

    def look(self) -> None:
        """There may be something to place."""
        if len(self._placing):
            self._to_place.set()

    def asked(self, peer: StoreName, blocks: Sequence[PlacedBlock]) -> None:
        """A peer has these, and this store is home to them. More than there is room for stays where
        it is."""
        waiting = [
            Waiting(block.tenant, PutBlock(key=block.key, parent=block.parent, pages=()))
            for block in blocks
        ]
        taken = self._asked.add(peer, waiting)
        for block in blocks[:taken]:
            self._placed_here[block.key] = block
        self._to_take.set()

    def forget(self, peer: StoreName) -> None:
        """The peer is gone: what was to be read from it is not."""
        self._asked.forget(peer)

    def comes_from(self, key: BlockKey) -> StoreName | None:
        """Who asked us to take it, if it is being taken now: its word may have overtaken the change
        that says it has the block."""
        return self._from.get(key)

    async def place(self) -> None:
        """Tell homes of the blocks that wait for them: each as fast as it reads, whatever the
        others do."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._to_place.wait()
                turn = self._placing.take(self._telling)
                if turn is None:
                    self._to_place.clear()
                    continue
                home, keys = turn
                link = self._link_of(home)
                blocks = self.placed(keys)
                if link is not None and blocks:
                    self._telling.add(home)
                    tasks.create_task(self._tell(home, link, blocks))

    async def _tell(self, home: StoreName, link: PoolLink, blocks: Sequence[PlacedBlock]) -> None:
        try:
            async with asyncio.timeout(_TELL_S):
                await link.place(blocks)
        except TimeoutError:
            self._placing.forget(home)
        finally:
            self._telling.discard(home)
            self.look()

    async def take_in(self) -> None:
        """Read the blocks that this store is home to, a few at a time."""
        while True:
            turn = self._asked.take(TAKEN_AT_ONCE)
            if turn is None:
                self._placed_here.clear()
                self._to_take.clear()
                await self._to_take.wait()
                continue
            await self._take_these(*turn)

    async def _take_these(self, peer: StoreName, waiting: Sequence[Waiting]) -> None:
        assert self._blocks is not None
        link = self._link_of(peer)
        if link is None or not link.present:
            return
        host = self._blocks.host
        self._make_way([one.block.key for one in waiting])
        keys = [one.block.key for one in waiting if one.block.key not in host]
        records = [self._record(self._placed_here[key]) for key in keys]
        for record in records:
            self._from[record.key] = peer
        try:
            await self._blocks.bringing_up.take_in(records, _TAKE_IN_S)
            self.taken_blocks += sum(record.key in host for record in records)
        finally:
            for record in records:
                self._from.pop(record.key, None)

    def _make_way(self, keys: Sequence[BlockKey]) -> None:
        """For exact blocks: lossy copies of them go, if nobody reads them."""
        assert self._blocks is not None
        work = self._blocks.own_work
        for key in keys:
            held = work.hold(key, _HOLDER)
            if held is None:
                continue
            lossy = bool(held.sealed.record.lineage)
            work.release(held)
            if lossy:
                self._blocks.host.drop_idle(key)

    def _record(self, placed: PlacedBlock) -> RecordedBlock:
        assert self._blocks is not None
        self._blocks.host.expect(placed.key, placed.position)
        return RecordedBlock(
            key=placed.key, parent=placed.parent, tenant=placed.tenant, numerics=placed.numerics
        )

    def placed(self, keys: Sequence[BlockKey]) -> list[PlacedBlock]:
        """What their homes are told of them; those that are here no more are left out."""
        return [one for key in keys if (one := self._placed(key)) is not None]

    def _placed(self, key: BlockKey) -> PlacedBlock | None:
        """None: it is here no more, or not to the bit."""
        assert self._blocks is not None
        held = self._blocks.own_work.hold(key, _HOLDER)
        if held is None:
            return None
        self._blocks.own_work.release(held)
        if held.sealed.record.lineage:
            return None  # nobody's to pass on
        record = held.sealed.record
        return PlacedBlock(
            key=key,
            parent=record.parent,
            position=self._blocks.host.position_of(key),
            tenant=record.tenant,
            numerics=record.numerics,
        )
