"""Blocks that a step has completed: sealed, told to the store, and dropped if nobody listens."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from link_kit import until
from scripted_store import ScriptedStore, client

from antiphon.live import write_back
from antiphon.live.store_session import StoreSession
from antiphon.live.write_back import Drop, WriteBack
from antiphon.store.transfer import OwnedRegion
from antiphon.types import BlockRemoved, BlockStored, KvShape, OfferedPage, PageId

pytestmark = pytest.mark.timeout(60)
SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=64)


class Pages:
    """Seals, and counts how often."""

    def __init__(self, region: OwnedRegion) -> None:
        self._region = region
        self.sealed: list[PageId] = []

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        self.sealed += pages
        return self._region.seal(pages)


class Side:
    """A worker's memory, and what it puts into a store."""

    def __init__(self, folder: Path, store: ScriptedStore) -> None:
        self.region = OwnedRegion(SHAPE)
        self.threads = ThreadPoolExecutor(1)
        self.client = client(store.path, self.region, self.threads)
        self.pages = Pages(self.region)
        self.back = WriteBack(self.pages, self.client.session)

    def page(self, number: int) -> np.ndarray:
        return self.region.content.reshape(SHAPE.pages, -1)[number]

    def computed(self, number: int, tenant: bytes = b"") -> tuple[BlockStored, bytes]:
        """A step has completed block `number`."""
        pages = tuple(range(4 * number, 4 * number + 4))
        self.region.begin_write(pages)
        for one in pages:
            self.page(one)[:] = np.frombuffer(os.urandom(SHAPE.page_bytes), np.uint8)
        event = BlockStored(key(number), None, pages=pages, tenant=tenant)
        self.back.heard(event)
        return event, b"".join(self.page(one).tobytes() for one in pages)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


@asynccontextmanager
async def sides(folder: Path) -> AsyncIterator[tuple[Side, ScriptedStore]]:
    folder.chmod(0o700)
    async with ScriptedStore(folder, SHAPE) as store:
        side = Side(folder, store)
        side.client.start()
        await until(lambda: side.client.session() is not None)
        yield side, store
        await side.client.close()
        side.threads.shutdown()
        side.region.close()


def content(store: ScriptedStore, number: int) -> bytes:
    pages = store.region.content.reshape(store.shape.pages, -1)
    return b"".join(pages[one.page].tobytes() for one in store.kept[key(number)])


async def test_what_a_step_completed_is_in_the_store(tmp_path: Path) -> None:
    async with sides(tmp_path) as (side, store):
        written = [side.computed(number)[1] for number in range(3)]
        side.back.send()
        await until(lambda: len(store.kept) == 3)
        assert [content(store, number) for number in range(3)] == written
        assert (side.back.put_blocks, side.back.dropped.total()) == (3, 0)
        side.back.send()
        assert len(store.puts) == 1, "nothing is said twice, nor is an empty message sent"


async def test_each_tenants_blocks_are_a_message_of_their_own(tmp_path: Path) -> None:
    async with sides(tmp_path) as (side, store):
        for number, tenant in enumerate((b"a", b"b", b"a", b"")):
            side.computed(number, tenant)
        side.back.send()
        await until(lambda: len(store.puts) == 3)
        assert {put.tenant: [one.key for one in put.blocks] for put in store.puts} == {
            b"": [key(3)],
            b"a": [key(0), key(2)],
            b"b": [key(1)],
        }


async def test_many_blocks_are_several_messages(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(write_back, "_PAGES_A_MESSAGE", 11)
    async with sides(tmp_path) as (side, store):
        for number in range(5):
            side.computed(number)
        side.back.send()
        await until(lambda: len(store.kept) == 5)
        assert [len(put.blocks) for put in store.puts] == [2, 2, 1]


async def test_a_block_that_is_gone_again_is_not_put(tmp_path: Path) -> None:
    """Its pages may be another's by now."""
    async with sides(tmp_path) as (side, store):
        side.computed(0)
        side.computed(1)
        side.back.heard(BlockRemoved(key(0)))
        side.back.send()
        await until(lambda: len(store.kept) == 1)
        assert side.pages.sealed == [4, 5, 6, 7]


async def test_blocks_in_doubt_are_forgotten_by_the_store_too(tmp_path: Path) -> None:
    """A prefix that a failed step wrote would else be fetched again at every retry."""
    async with sides(tmp_path) as (side, store):
        side.computed(0)
        side.back.send()
        side.computed(1)
        side.back.heard(BlockRemoved(key(0), doubtful=True))
        side.back.heard(BlockRemoved(key(1), doubtful=True))
        side.back.heard(BlockRemoved(key(2)))
        side.back.send()
        await until(lambda: store.forgotten == [key(0), key(1)])
        assert list(store.kept) == [key(0)], "what is in doubt is not put any more"
        side.computed(0)
        side.back.send()
        await until(lambda: len(store.puts) == 2)
        assert store.forgotten == [key(0), key(1)], "nothing is said twice"


async def test_a_store_that_was_away_hears_of_doubts_when_it_is_back(tmp_path: Path) -> None:
    """It may have the blocks on disk."""
    async with sides(tmp_path) as (side, store):
        there = False
        back = WriteBack(side.pages, lambda: side.client.session() if there else None)
        back.heard(BlockRemoved(key(0), doubtful=True))
        back.send()
        there = True
        back.send()
        await until(lambda: store.forgotten == [key(0)])


async def test_what_came_from_elsewhere_is_not_put(tmp_path: Path) -> None:
    async with sides(tmp_path) as (side, store):
        side.computed(0)
        side.back.forget()
        side.computed(1)
        side.back.send()
        await until(lambda: len(store.kept) == 1)
        assert list(store.kept) == [key(1)]


async def test_without_a_store_nothing_is_sealed_or_kept(tmp_path: Path) -> None:
    async with sides(tmp_path) as (side, store):
        await store.close()
        await until(lambda: side.client.session() is None)
        side.computed(0)
        side.back.send()
        assert side.back.dropped == {Drop.ABSENT: 1}
        assert side.pages.sealed == []
        await store.open()
        await until(lambda: side.client.session() is not None)
        side.computed(1)
        side.back.send()
        await until(lambda: len(store.kept) == 1)
        assert (side.back.put_blocks, side.back.dropped.total()) == (1, 1)


async def test_a_store_that_does_not_read_gets_no_more_than_it_can_hold(tmp_path: Path) -> None:
    """LMCache 1285: a slow writer starved the memory of all. Here it is told less."""
    async with sides(tmp_path) as (side, store):
        store.callers[0].stream.pause()
        session = side.client.session()
        assert isinstance(session, StoreSession)
        rounds = 0
        while not side.back.dropped[Drop.BEHIND]:
            for number in range(16):
                side.computed(number)
            side.back.send()
            assert session.unsent_bytes <= write_back.MAX_UNSENT_BYTES + 16 * 1000
            rounds += 1
            assert rounds < 1000
            await asyncio.sleep(0)
        sealed = len(side.pages.sealed)
        side.computed(0)
        side.back.send()
        assert len(side.pages.sealed) == sealed, "what is not sent costs nothing"
        put = side.back.put_blocks
        store.callers[0].stream.resume()
        await until(lambda: sum(len(one.blocks) for one in store.puts) == put)
        side.computed(0)
        side.back.send()
        await until(lambda: sum(len(one.blocks) for one in store.puts) == put + 1)


async def test_a_page_that_was_reassigned_before_the_store_came_to_it_is_not_kept(
    tmp_path: Path,
) -> None:
    """vLLM 45704: what is stored must be what was computed, whenever the copy is made."""
    async with sides(tmp_path) as (side, store):
        store.callers[0].stream.pause()
        side.computed(0)
        (_, second) = side.computed(1)
        side.back.send()
        side.region.begin_write([2])
        store.callers[0].stream.resume()
        await until(lambda: len(store.puts) == 1)
        assert list(store.kept) == [key(1)]
        assert content(store, 1) == second
