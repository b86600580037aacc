"""Blocks that are lent encoded: once for all who want one, by threads, kept while there is room.

    PoolRead (level) ──► shelf? ──► encoded on a thread ──► shelf, under the lease ──► PoolLent

The block is held in its slot while it is encoded. What can't be encoded, or finds no room, is lent
as it is. Nothing of this is ever on disk.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from antiphon.core.store_pool import BlobShelf, LevelBook
from antiphon.live.started_threads import ended_unless, started_threads
from antiphon.live.store.host_memory import HeldBlock, HostBlocks
from antiphon.store.transfer.tcp import PageServer
from antiphon.types import BlockKey, DataAccess, LeaseId, LentBlock, OfferedPage, PageId, Seconds

from .block_coder import BlockCoder
from .encoded_pages import PAGE_BYTES, encoded_region, pages_for

THREADS = 2
MOST_ENCODED_AT_ONCE = 256
"""Of more that are wanted at the same time the others are lent as they are."""
_SHARE = 0.125
"""Of the store's memory, beside it."""
_HOLDER = "encoding"


class BlobName(NamedTuple):
    """Equal names, equal bytes. `checksums`: of the block's pages."""

    key: BlockKey
    level: str
    start: int
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Blob:
    pages: tuple[OfferedPage, ...]
    size_bytes: int


class EncodedLender:
    """Of one tenancy, from its making to `close`."""

    def __init__(
        self,
        coder: BlockCoder,
        book: LevelBook,
        host: HostBlocks,
        endpoints: Sequence[str],
        *,
        must_seal: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        """Raises `UsageError` if pages can't be served there, or no threads are left."""
        memory = host.memory
        self._coder = coder
        self._book = book
        self._host = host
        self._spawn = spawn
        self._clock = host.clock
        share = int(_SHARE * memory.slots * memory.slot_bytes)
        self._region = encoded_region(memory.slot_bytes, share)
        self._threads = started_threads(THREADS, "kv-encode")
        with ended_unless(self._threads):
            self._server = PageServer(self._region, endpoints, must_seal=must_seal)
        self._shelf: BlobShelf[BlobName] = BlobShelf(self._region.shape.pages)
        self._blobs: dict[BlobName, _Blob] = {}
        self._under_way: dict[BlobName, asyncio.Task[None]] = {}

    def admit(self) -> DataAccess:
        """A key for one more taker."""
        return self._server.admit()

    def dismiss(self, access: DataAccess) -> None:
        """The taker is gone."""
        self._server.dismiss(access)

    def release(self, lease: LeaseId) -> None:
        """Nobody reads under it any more."""
        self._shelf.release(lease)

    async def close(self) -> None:
        """What is being encoded is encoded to its end; nothing is served any more."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        await asyncio.to_thread(self._server.close)
        self._threads.shutdown(wait=False)

    async def encode(
        self, level: str, starts: Mapping[BlockKey, int], wait_s: Seconds
    ) -> tuple[Sequence[BlobName], Sequence[Seconds]]:
        """Encode those of the blocks that are here exactly and can be had at that level, `starts`
        being the positions of their first tokens; for `wait_s` at most, others go on. What they are
        called, for `lend`; and how long each that was encoded for this took its thread."""
        names, seconds = list[BlobName](), list[Seconds]()
        for key, start in starts.items():
            name = self._named(key, level, start, seconds)
            if name is not None:
                names.append(name)
        waiting = [self._under_way[name] for name in names if name in self._under_way]
        if waiting:
            await asyncio.wait(waiting, timeout=wait_s)
        return names, tuple(seconds)

    def lend(
        self, names: Sequence[BlobName], lease: LeaseId, ttl_s: Seconds
    ) -> dict[BlockKey, LentBlock]:
        """Those of them that are encoded now. They stay for `ttl_s` from now on, or until
        `release`."""
        there = [name for name in names if self._shelf.get(name) and name in self._blobs]
        self._shelf.hold(there, lease, self._clock() + ttl_s)
        blobs = [(name.key, self._blobs[name]) for name in there]
        return {
            key: LentBlock(key=key, pages=blob.pages, encoded_bytes=blob.size_bytes)
            for key, blob in blobs
        }

    def _named(
        self, key: BlockKey, level: str, start: int, seconds: list[Seconds]
    ) -> BlobName | None:
        """What its blob is called, which is there or under way; None: it will not be."""
        held = self._host.hold(key, _HOLDER)
        if held is None:
            return None
        name = BlobName(key, level, start, held.sealed.checksums)
        known = name in self._blobs and name in self._shelf
        busy = len(self._under_way) >= MOST_ENCODED_AT_ONCE
        exact = held.sealed.record.key == key and not held.sealed.record.lineage
        if known or name in self._under_way or busy or not exact:
            self._host.release(held)
            return name if exact and (known or name in self._under_way) else None
        task = self._spawn(self._encode(name, held, seconds))
        self._under_way[name] = task
        task.add_done_callback(lambda _: self._under_way.pop(name))
        return name

    async def _encode(self, name: BlobName, held: HeldBlock, seconds: list[Seconds]) -> None:
        """Nobody's end cancels it: others may wait for the same."""
        loop, memory = asyncio.get_running_loop(), self._host.memory

        def encode() -> tuple[bytes | None, Seconds]:
            began = time.thread_time()
            data = self._coder.encode(memory.block(held.slot), name.level, name.start)
            return data, time.thread_time() - began

        try:
            data, took_s = await loop.run_in_executor(self._threads, encode)
        finally:
            self._host.release(held)
        seconds.append(took_s)
        if data is None or len(data) >= memory.slot_bytes:
            return
        pages = self._shelf.place(name, pages_for(len(data)), self._clock())
        if pages is None:
            return
        self._blobs.pop(name, None)  # of an earlier life on the shelf
        self._blobs = {old: blob for old, blob in self._blobs.items() if old in self._shelf}
        try:
            sealed = await loop.run_in_executor(self._threads, self._write, pages, data)
            self._blobs[name] = _Blob(sealed, len(data))
            self._book.encoded(name.level, len(data), took_s)
        finally:
            self._shelf.written(name)
            if name not in self._blobs:
                self._shelf.discard(name)

    def _write(self, pages: Sequence[PageId], data: bytes) -> tuple[OfferedPage, ...]:
        """On a thread."""
        self._region.begin_write(pages)
        padded = np.zeros(len(pages) * PAGE_BYTES, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        self._region.content.reshape(-1, PAGE_BYTES)[list(pages)] = padded.reshape(-1, PAGE_BYTES)
        return self._region.seal(pages)
