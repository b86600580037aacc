"""A worker's fetches from a scripted store, for tests."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from link_kit import until
from scripted_store import ScriptedStore, client, open_descriptors

from antiphon.live.store_fetch import FetchEnded, LayerGroups, StoreFetch
from antiphon.store.transfer import OwnedRegion
from antiphon.types import Fetch, KvShape, Located, OfferedPage, RequestId

SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=256)
BLOCKS = 6
R = RequestId("r")


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def fetch(name: str = "r", *, blocks: int = BLOCKS, first: int = 0, attempt: int = 1) -> Fetch:
    """Blocks 0, 1, … to pages from 4 * `first` on."""
    return Fetch(
        request=RequestId(name),
        attempt=attempt,
        keys=tuple(map(key, range(blocks))),
        targets=tuple(tuple(range(4 * at, 4 * at + 4)) for at in range(first, first + blocks)),
        tenant=b"t",
    )


class Side:
    """A worker's memory, and its fetches from a store that has blocks 0 … 5."""

    def __init__(self, folder: Path, timeout_s: float, layers: LayerGroups | None = None) -> None:
        folder.chmod(0o700)
        self.store = ScriptedStore(folder, SHAPE)
        self.contents = [os.urandom(4 * SHAPE.page_bytes) for _ in range(BLOCKS)]
        for number, content in enumerate(self.contents):
            self.store.keep(key(number), content)
        self.region = OwnedRegion(SHAPE)
        self.threads = ThreadPoolExecutor(1)
        self.client = client(self.store.path, self.region, self.threads)
        self.ended: list[FetchEnded] = []
        self.broken: list[BaseException] = []
        self.when_ended: Callable[[FetchEnded], None] = lambda _: None
        self.fetches = StoreFetch(
            self.client.session,
            self.client.settled,
            timeout_s=timeout_s,
            clock=time.monotonic,
            on_end=self._end,
            on_broken=self.broken.append,
            layers=layers,
        )

    def _end(self, ended: FetchEnded) -> None:
        self.ended.append(ended)
        self.when_ended(ended)

    def block(self, number: int) -> bytes:
        pages = self.region.content.reshape(SHAPE.pages, -1)
        return pages[4 * number : 4 * number + 4].tobytes()

    async def run(self, one: Fetch) -> FetchEnded:
        before = len(self.ended)
        self.fetches.begin(one)
        await until(lambda: len(self.ended) > before)
        return self.ended[-1]

    def answering(self, change: Callable[[Located], Located]) -> None:
        self.store.answer = lambda locate: change(self.store.located(locate))

    def answering_block(self, number: int, change: Callable[[OfferedPage], OfferedPage]) -> None:
        """One page of one block is said otherwise than it is."""

        def changed(located: Located) -> Located:
            blocks = list(located.blocks)
            first, *rest = blocks[number]
            blocks[number] = (change(first), *rest)
            return replace(located, blocks=tuple(blocks))

        self.answering(changed)


@asynccontextmanager
async def sides(
    folder: Path, timeout_s: float = 20.0, layers: LayerGroups | None = None
) -> AsyncIterator[Side]:
    """Law: whatever happened, nothing is left."""
    side = Side(folder, timeout_s, layers)
    before = open_descriptors()
    async with side.store:
        side.client.start()
        await until(lambda: side.client.session() is not None)
        yield side
        await side.fetches.close()
        assert side.broken == [] and not side.fetches._tasks
        await side.client.close()
        side.threads.shutdown()
        side.region.close()
        await until(lambda: not side.store.callers)
    await until(lambda: open_descriptors() <= before)
    assert not [task for task in asyncio.all_tasks() if task.get_name() in ("fetch", "locate")]
