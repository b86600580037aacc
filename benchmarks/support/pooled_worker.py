"""A worker beside a store of a pool, as the benchmark drives it: real memory, no model."""

import asyncio
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from antiphon.live.store_client import StoreClient
from antiphon.live.store_session import StoreSession
from antiphon.store.transfer import OwnedRegion
from antiphon.types import (
    BlockKey,
    Incarnation,
    KvShape,
    Locate,
    PagePull,
    Put,
    PutBlock,
    StoreHello,
    WorkerId,
)

PAGES_A_BLOCK = 4
JOIN_S = 30.0


class PooledWorker:
    """Puts blocks whose content follows from their keys, fetches them, and compares every byte."""

    def __init__(self, path: Path, name: str, *, block_bytes: int, blocks: int = 2048) -> None:
        self.shape = KvShape(
            layout="benchmark",
            page_tokens=128,
            block_tokens=128 * PAGES_A_BLOCK,
            page_bytes=block_bytes // PAGES_A_BLOCK,
            pages=2 * blocks * PAGES_A_BLOCK,
        )
        self.fetched_blocks = self.missed_blocks = self.wrong_blocks = 0
        self._blocks, self._next = blocks, 0
        self._region = OwnedRegion(self.shape)
        self._table = self._region.content.reshape(-1, PAGES_A_BLOCK * self.shape.page_bytes)
        self._threads = ThreadPoolExecutor(1)
        hello = StoreHello(
            worker=WorkerId(name),
            incarnation=Incarnation(f"{random.getrandbits(64):x}"),
            kv=self.shape,
            identity=b"benchmark".ljust(32),
            numerics="benchmark",
        )
        self._client = StoreClient(
            path,
            lambda: hello,
            self._region,
            self._threads,
            clock=time.monotonic,
            heartbeat_s=0.25,
            lost_after_s=10.0,
        )

    async def join(self) -> None:
        """Raises `TimeoutError`."""
        self._client.start()
        async with asyncio.timeout(JOIN_S):
            while self._client.session() is None:
                await asyncio.sleep(0.01)

    async def leave(self) -> None:
        await self._client.close()
        self._threads.shutdown()
        self._region.close()

    @property
    def session(self) -> StoreSession | None:
        return self._client.session()

    async def serve(self, keys: Sequence[BlockKey], wait_s: float) -> int:
        """A request: read what is there of its prompt, put the rest; how many blocks came."""
        session = self.session
        if session is None:
            return 0
        found = await self._fetch(session, keys, wait_s)
        rest = list(zip(keys[found:], [None, *keys][found:], strict=False))[: self._blocks // 2]
        session.put(Put(tenant=b"", blocks=tuple(self._written(*one) for one in rest)))
        return found

    async def _fetch(self, session: StoreSession, keys: Sequence[BlockKey], wait_s: float) -> int:
        located = await session.locate(Locate(tenant=b"", keys=tuple(keys), wait_s=wait_s))
        found = min(len(located.blocks), self._blocks)
        pulls = [
            PagePull(page, (self._blocks + number) * PAGES_A_BLOCK + at)
            for number, pages in enumerate(located.blocks[:found])
            for at, page in enumerate(pages)
        ]
        copied = session.copy_here(pulls)
        if located.lease is not None:
            session.release(located.lease)
        good = len(copied.good) if all(copied.good) else copied.good.index(False)
        found = good // PAGES_A_BLOCK
        for number, key in enumerate(keys[:found]):
            same = self._table[self._blocks + number] == self._content(key)
            self.wrong_blocks += not same.all()
        self.fetched_blocks += found
        self.missed_blocks += len(keys) - found
        return found

    def _written(self, key: BlockKey, parent: BlockKey | None) -> PutBlock:
        block, self._next = self._next, (self._next + 1) % self._blocks
        pages = range(block * PAGES_A_BLOCK, (block + 1) * PAGES_A_BLOCK)
        self._region.begin_write(pages)
        self._table[block] = self._content(key)
        return PutBlock(key=key, parent=parent, pages=self._region.seal(pages))

    def _content(self, key: BlockKey) -> np.ndarray:
        size = PAGES_A_BLOCK * self.shape.page_bytes
        seed = int.from_bytes(key[:8], "little")
        words = np.arange(size // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (words + np.uint64(seed)).view(np.uint8)
