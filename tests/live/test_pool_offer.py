"""What a prefix cache has already, offered to a store that may not have it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from link_kit import until
from scripted_store import ScriptedStore, client

from antiphon.core.kv import PagePool, Reservation
from antiphon.errors import BugError
from antiphon.live import pool_offer
from antiphon.live.pool_offer import PoolOffer, blocks_a_slice
from antiphon.live.write_back import MAX_UNSENT_BYTES, Drop, WriteBack
from antiphon.store.transfer import OwnedRegion
from antiphon.types import BlockKey, BlockStored, KvShape, OfferedPage, PageId

pytestmark = pytest.mark.timeout(60)
SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=128)
BLOCKS = 10


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


class Side:
    """A worker's memory and prefix cache, and what of it a store is told."""

    def __init__(self, store: ScriptedStore, block: Callable[["Side"], Callable] | None) -> None:
        self.region = OwnedRegion(SHAPE)
        self.threads = ThreadPoolExecutor(1)
        self.client = client(store.path, self.region, self.threads)
        self.back = WriteBack(self, self.client.session)
        self.pool = PagePool(SHAPE.pages, 4, listen=self.back.heard)
        self.sealed: list[PageId] = []
        self.broken: list[BaseException] = []
        self.offer = PoolOffer(
            self.back,
            self.pool.named,
            self.pool.block if block is None else block(self),
            slice_blocks=4,
            pace_s=0.01,
            on_broken=self.broken.append,
        )
        self.client.on_session(self.offer.session_began)

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        self.sealed += pages
        return self.region.seal(pages)

    def computed(self, number: int, tenant: bytes = b"") -> bytes:
        """A request has computed block `number` after the one before, and has ended."""
        taken = self.pool.reserve(4)
        assert isinstance(taken, Reservation)
        content = self.written(taken.pages)
        parent = key(number - 1) if number else None
        assert self.pool.commit(key(number), parent, taken.pages, tenant=tenant)
        self.back.send()
        self.pool.release(taken.pages)
        return content

    def written(self, pages: Sequence[PageId]) -> bytes:
        self.region.begin_write(pages)
        for page in pages:
            self.page(page)[:] = np.frombuffer(os.urandom(SHAPE.page_bytes), np.uint8)
        return b"".join(self.page(page).tobytes() for page in pages)

    def page(self, number: int) -> np.ndarray:
        return self.region.content.reshape(SHAPE.pages, -1)[number]

    def all_reassigned(self) -> None:
        """All that was cached is evicted, and written by others."""
        taken = self.pool.reserve(SHAPE.pages)
        assert isinstance(taken, Reservation)
        self.written(taken.pages)


@asynccontextmanager
async def sides(
    folder: Path, block: Callable[[Side], Callable] | None = None
) -> AsyncIterator[tuple[Side, ScriptedStore]]:
    """Nobody is in the store yet. Law: nothing goes on afterwards."""
    folder.chmod(0o700)
    async with ScriptedStore(folder, SHAPE) as store:
        side = Side(store, block)
        yield side, store
        await side.offer.close()
        await side.client.close()
        side.threads.shutdown()
        side.region.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "pool-offer"]


def content(store: ScriptedStore, number: int) -> bytes:
    pages = store.region.content.reshape(store.shape.pages, -1)
    return b"".join(pages[one.page].tobytes() for one in store.kept[key(number)])


def told(store: ScriptedStore) -> list[BlockKey]:
    return [block.key for put in store.puts for block in put.blocks]


async def connected(side: Side) -> None:
    side.client.start()
    await until(lambda: side.client.session() is not None)


async def test_a_new_store_gets_what_is_cached_parents_first_a_slice_at_a_time(
    tmp_path: Path,
) -> None:
    """A store that had restarted without a disk never got the hottest prompts again."""
    async with sides(tmp_path) as (side, store):
        written = [side.computed(number) for number in range(BLOCKS)]
        assert side.back.dropped == {Drop.ABSENT: BLOCKS}
        await connected(side)
        await until(lambda: len(store.kept) == BLOCKS)
        assert [content(store, number) for number in range(BLOCKS)] == written
        assert told(store) == [key(number) for number in range(BLOCKS)]
        assert [len(put.blocks) for put in store.puts] == [4, 4, 2]
        parents = [block.parent for put in store.puts for block in put.blocks]
        assert parents == [None, *told(store)[:-1]]
        assert side.back.put_blocks == BLOCKS
        await until(lambda: side.offer._task is not None and side.offer._task.done())


async def test_each_store_that_comes_is_told_and_no_store_twice(tmp_path: Path) -> None:
    async with sides(tmp_path) as (side, store):
        side.computed(0)
        await connected(side)
        await until(lambda: len(store.kept) == 1)
        side.computed(1)
        await until(lambda: len(store.kept) == 2)
        await store.close()
        await until(lambda: side.client.session() is None)
        store.kept.clear()
        await store.open()
        await until(lambda: len(store.kept) == 2)
        await asyncio.sleep(0.05)
        assert told(store) == [key(0), key(1), key(0), key(1)]


async def test_each_tenants_blocks_stay_its_own(tmp_path: Path) -> None:
    async with sides(tmp_path) as (side, store):
        for number, tenant in enumerate((b"a", b"b", b"a")):
            side.computed(number, tenant)
        await connected(side)
        await until(lambda: len(store.kept) == 3)
        assert {put.tenant: [one.key for one in put.blocks] for put in store.puts} == {
            b"a": [key(0), key(2)],
            b"b": [key(1)],
        }


async def test_what_is_evicted_meanwhile_is_not_sealed(tmp_path: Path) -> None:
    """Sealing a page that is another's by now would pass its KV off as the old block's."""
    async with sides(tmp_path) as (side, _):
        for number in range(BLOCKS):
            side.computed(number)
        await connected(side)
        side.offer.session_began()
        side.all_reassigned()
        sealed = len(side.sealed)
        await until(lambda: not side.offer)
        assert len(side.sealed) == sealed


async def test_the_test_above_finds_who_looks_too_early(tmp_path: Path) -> None:
    """Negative control: what is offered is where the block was when the session began."""

    def early(side: Side) -> Callable[[BlockKey], BlockStored | None]:
        seen: dict[BlockKey, BlockStored | None] = {}

        def block(wanted: BlockKey) -> BlockStored | None:
            seen.update({one: side.pool.block(one) for one in side.pool.named()})
            return seen.get(wanted)

        return block

    async with sides(tmp_path, early) as (side, store):
        written = [side.computed(number) for number in range(BLOCKS)]
        await connected(side)
        await until(lambda: len(store.kept) >= 4)
        side.all_reassigned()
        await until(lambda: len(store.kept) == BLOCKS)
        assert any(content(store, number) != written[number] for number in range(BLOCKS))


async def test_a_store_that_goes_in_the_middle_gets_all_when_it_is_back(tmp_path: Path) -> None:
    async with sides(tmp_path) as (side, store):
        for number in range(BLOCKS):
            side.computed(number)
        await connected(side)
        await until(lambda: len(store.puts) == 1)
        await store.close()
        await until(lambda: not side.offer)
        store.kept.clear()
        await store.open()
        await until(lambda: len(store.kept) == BLOCKS)
        assert side.broken == []


async def test_a_put_that_was_late_comes_when_there_is_room(tmp_path: Path) -> None:
    """A gap in the middle of a prompt made all behind it useless for as long as it was cached."""
    async with sides(tmp_path) as (side, store):
        await connected(side)
        session = side.client.session()
        assert session is not None
        store.callers[0].stream.pause()
        side.computed(0)
        while session.unsent_bytes <= MAX_UNSENT_BYTES:
            block = side.pool.block(key(0))
            assert block is not None
            side.back.offer([block] * 64)
            await asyncio.sleep(0)
        for number in range(1, BLOCKS):
            side.computed(number)
        assert side.back.dropped == {Drop.BEHIND: BLOCKS - 1}
        await asyncio.sleep(0.05)
        assert len(side.offer) == BLOCKS - 1, "it waits until the store reads"
        store.callers[0].stream.resume()
        await until(lambda: len(store.kept) == BLOCKS)


async def test_no_more_is_owed_than_there_is_room_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pool_offer, "MAX_OWED", 3)
    async with sides(tmp_path) as (side, store):
        for number in range(BLOCKS):
            side.computed(number)
        await connected(side)
        side.offer.owe([key(number) for number in range(BLOCKS)])
        await until(lambda: not side.offer)
        await until(lambda: len(store.kept) == 3)


async def test_a_broken_law_is_heard(tmp_path: Path) -> None:
    def broken(side: Side) -> Callable[[BlockKey], BlockStored | None]:
        def block(wanted: BlockKey) -> BlockStored | None:
            raise BugError("for a test")

        return block

    async with sides(tmp_path, broken) as (side, _):
        side.computed(0)
        await connected(side)
        await until(lambda: len(side.broken) == 1)
        assert str(side.broken[0]) == "for a test"


@pytest.mark.parametrize(
    ("block_bytes", "blocks"), [(0, 64), (64 * 1024, 64), (4 << 20, 8), (1 << 30, 1)]
)
def test_a_slice_is_bounded_in_blocks_and_bytes(block_bytes: int, blocks: int) -> None:
    assert blocks_a_slice(block_bytes) == blocks
