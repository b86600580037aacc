"""Our store as the benchmark drives it: its process, and a worker's client in this one.

    python benchmarks/support/own_store.py FOLDER MEMORY_BYTES    keep blocks, until the end

The worker's side is what a worker runs (`StoreClient`, `WriteBack`, `StoreFetch`), on an event loop
that runs while it is on turn. A value is a block of four pages.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import uvloop

from antiphon.core.config import build
from antiphon.live.socket_folder import STORE_SOCKET
from antiphon.live.store_client import StoreClient
from antiphon.live.store_fetch import FetchEnded, StoreFetch
from antiphon.live.store_process import run_store
from antiphon.live.watched_store import WatchedStore
from antiphon.live.write_back import WriteBack
from antiphon.store.transfer import OwnedRegion
from antiphon.types import (
    BlockKey,
    BlockStored,
    Fetch,
    Incarnation,
    KvShape,
    Locate,
    RequestId,
    StoreAsk,
    StoreHello,
    StoreOp,
    WorkerId,
)

PAGES_A_BLOCK = 4
START_S = 30.0
WAIT_S = 20.0
SILENT_S = 600.0
"""Both sides are silent while others are on turn."""
KEY_BYTES = 32
CLUSTER = {"cluster": {"lost_after_s": SILENT_S, "heartbeat_s": 1.0}}


class OwnStore:
    """Store and worker until `stack` ends: the store on the second of `cores`.

    Values 0 … `values` − 1 are put from the first half of the worker's memory and got into the
    second. `put_calls_s` collects how long the puts held the worker up.
    """

    def __init__(
        self, stack: ExitStack, cores: tuple[int, int], values: int, size: int, kept_bytes: int
    ) -> None:
        self.put_calls_s: list[float] = []
        self._values, self._words = values, size // PAGES_A_BLOCK // 8
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-store-")))
        self._start(stack, folder, cores[1], kept_bytes)
        self._region = OwnedRegion(_shape(values, size))
        stack.callback(self._region.close)
        self._content = self._region.content.view(np.uint64).reshape(-1, self._words)
        everything = range(2 * values * PAGES_A_BLOCK)
        self._region.begin_write(everything)
        self._content[:] = np.repeat(np.arange(2 * values, dtype=np.uint64), PAGES_A_BLOCK)[:, None]
        self._keys: list[BlockKey] = [b""] * values
        self._chance = random.Random(1)
        self._numbers = 0
        self._ended: dict[RequestId, asyncio.Future[FetchEnded]] = {}
        self._loop = uvloop.new_event_loop()
        stack.callback(self._loop.close)
        self._loop.run_until_complete(self._join(folder / STORE_SOCKET))
        stack.callback(lambda: self._loop.run_until_complete(self._leave()))

    def turn(self, what: str, groups: Sequence[Sequence[int]]) -> list[float]:
        """Seconds of each call: put (until others can get it), get, exists, or locate."""
        calls = {
            "put": self._put,
            "get": self._get,
            "exists": self._exists,
            "locate": self._locate,
        }

        async def all_of_them() -> list[float]:
            return [await calls[what](group) for group in groups]

        return self._loop.run_until_complete(all_of_them())

    async def _put(self, numbers: Sequence[int]) -> float:
        blocks = []
        for number in numbers:
            self._keys[number] = self._chance.randbytes(KEY_BYTES)
            pages = _pages(number)
            self._region.begin_write(pages)
            blocks.append(BlockStored(self._keys[number], None, pages))
        started = time.perf_counter()
        for block in blocks:
            self._write_back.heard(block)
        self._write_back.send()
        self.put_calls_s.append(time.perf_counter() - started)
        while await self._found(numbers) < len(numbers):
            if time.perf_counter() - started > WAIT_S:
                raise SystemExit(f"a put did not arrive: {self._write_back.dropped}")
        return time.perf_counter() - started

    async def _get(self, numbers: Sequence[int]) -> float:
        self._numbers += 1
        request = RequestId(str(self._numbers))
        self._ended[request] = self._loop.create_future()
        targets = tuple(_pages(self._values + number) for number in numbers)
        started = time.perf_counter()
        fetch = Fetch(
            request=request,
            attempt=1,
            keys=tuple(self._keys[number] for number in numbers),
            targets=targets,
        )
        self._fetch.begin(fetch)
        ended = await self._ended[request]
        took = time.perf_counter() - started
        del self._ended[request]
        for number, pages in zip(numbers, targets, strict=True):
            ends = self._content[pages[0], 0], self._content[pages[-1], -1]
            if not all(ended.good) or any(int(end) != number for end in ends):
                raise SystemExit(f"value {number} did not come: {ended.problem} {ends}")
            self._content[list(pages), 0] = 2**40
        return took

    async def _exists(self, numbers: Sequence[int]) -> float:
        keys = tuple(self._keys[number] for number in numbers)
        started = time.perf_counter()
        answer = await self._watched.ask(StoreAsk(op=StoreOp.LOOKUP, keys=keys), WAIT_S)
        took = time.perf_counter() - started
        if not all(answer.tiers):
            raise SystemExit("keys were not found")
        return took

    async def _locate(self, numbers: Sequence[int]) -> float:
        started = time.perf_counter()
        found = await self._found(numbers)
        took = time.perf_counter() - started
        if found != len(numbers):
            raise SystemExit(f"{found} of {len(numbers)} blocks were found")
        return took

    async def _found(self, numbers: Sequence[int]) -> int:
        session = self._client.session()
        assert session is not None
        keys = tuple(self._keys[number] for number in numbers)
        located = await session.locate(Locate(tenant=b"", keys=keys, wait_s=0.0))
        if located.lease is not None:
            session.release(located.lease)
        return len(located.blocks)

    # ── both processes ───────────────────────────────────────────────────────────────────────

    def _start(self, stack: ExitStack, folder: Path, core: int, kept_bytes: int) -> None:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder), str(kept_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit("the store's process ended")

    async def _join(self, path: Path) -> None:
        self._threads = ThreadPoolExecutor(1)
        hello = StoreHello(
            worker=WorkerId("mixed-0"),
            incarnation=Incarnation("1"),
            kv=self._region.shape,
            identity=b"benchmark".ljust(32),
            numerics="benchmark",
        )
        self._client = StoreClient(
            path,
            lambda: hello,
            self._region,
            self._threads,
            clock=time.monotonic,
            heartbeat_s=1.0,
            lost_after_s=SILENT_S,
        )
        self._client.start()
        self._write_back = WriteBack(self._region, self._client.session)
        self._fetch = StoreFetch(
            self._client.session,
            settled=self._client.settled,
            timeout_s=WAIT_S,
            clock=time.monotonic,
            on_end=lambda ended: self._ended[ended.request].set_result(ended),
            on_broken=_fail,
        )
        self._watched = WatchedStore(
            path,
            Incarnation("2"),
            build(CLUSTER).cluster,
            on_news=lambda _life, _news: None,
            on_left=lambda: None,
            clock=time.monotonic,
        )
        self._watching = asyncio.create_task(self._watched.run())
        try:
            await _until(lambda: self._client.session() is not None and self._watched.present)
        except TimeoutError:
            raise SystemExit(f"the store can't be joined: {self._client.problem}") from None

    async def _leave(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._fetch.close()
        await self._client.close()
        self._threads.shutdown()


def _shape(values: int, size: int) -> KvShape:
    return KvShape(
        layout="benchmark",
        page_tokens=16,
        block_tokens=16 * PAGES_A_BLOCK,
        page_bytes=size // PAGES_A_BLOCK,
        pages=2 * values * PAGES_A_BLOCK,
    )


def _pages(block: int) -> tuple[int, ...]:
    return tuple(range(block * PAGES_A_BLOCK, (block + 1) * PAGES_A_BLOCK))


async def _until(good: Callable[[], bool]) -> None:
    async with asyncio.timeout(START_S):
        while not good():
            await asyncio.sleep(0.01)


def _fail(error: BaseException) -> None:
    raise error


def _keep(folder: Path, memory_bytes: int) -> None:
    store = {"memory_bytes": memory_bytes, "policy": "lru"}
    config = build({"store": store, **CLUSTER})
    run_store(config, folder / STORE_SOCKET, on_ready=partial(print, "ready", flush=True))


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), int(sys.argv[2]))
