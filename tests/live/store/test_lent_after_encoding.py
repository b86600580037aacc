"""A peer's lease begins when it is said, however long encoding took: until then and after it the
block stays, and no longer than that."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from encoded_kit import BLOCK_BYTES, SHAPE, CodedWorker, content_at
from store_callers import IDENTITY, NUMERICS, TENANT, until

from antiphon.core.store_joining import Tenancy
from antiphon.core.store_pool import LevelBook
from antiphon.live.store.pool.block_coder import BlockCoder, Coding
from antiphon.live.store.pool.encoded_lender import EncodedLender
from antiphon.live.store.pool.pool_session import PoolSession
from antiphon.live.store.tiered_blocks import Source, TieredBlocks
from antiphon.store.transfer import MappedRegion
from antiphon.types import (
    STORE,
    BlockKey,
    PoolLent,
    PoolRead,
    Release,
    StoreConfig,
    StoreName,
)
from antiphon.wire import TO_POOLED_STORE, FrameReader, Kind, encode

TTL_S = 1.0


class Lending:
    """A store with room for one block, whose clock is `now`, and a peer that reads it encoded.
    Encoding goes on once `go` is set."""

    def __init__(self, go: threading.Event) -> None:
        self.now = 0.0
        self.go, self.encoding = go, threading.Event()
        self.answers: list[PoolLent] = []
        tenancy = Tenancy(IDENTITY, SHAPE)
        self.blocks = TieredBlocks(
            tenancy,
            StoreConfig(memory_bytes=BLOCK_BYTES, lease_ttl_s=TTL_S, policy="lru"),
            note=lambda _: None,
            open_slower=lambda _: (None, None),
            spawn=asyncio.create_task,
            clock=lambda: self.now,
        )
        self.blocks.start()
        self._worker = CodedWorker(Path("/nowhere"))
        memory = MappedRegion(self._worker.region.fd, self.blocks.memory.region)
        self._source = Source("writer", NUMERICS, memory)
        coder = BlockCoder(tenancy, Coding("int8"))
        book = LevelBook("int8", coder.guesses(), block_tokens=SHAPE.block_tokens)
        self.lender = EncodedLender(
            coder,
            book,
            self.blocks.own_work,
            ("tcp://127.0.0.1:0",),
            must_seal=False,
            spawn=asyncio.create_task,
        )
        self._session = PoolSession(
            StoreName("b"),
            "b's stream",
            self.blocks,
            cast("Any", None),
            lease_ttl_s=TTL_S,
            placed=lambda *_: None,
            encoded=self.lender,
            spawn=asyncio.create_task,
            on_over=lambda _: None,
        )

    def keys(self, seed: int) -> list[BlockKey]:
        return self._worker.keys(1, seed)

    def offer(self, seed: int) -> BlockKey:
        """A worker puts a block; it may come to nothing."""
        [key] = self.keys(seed)
        put = self._worker.sealed(key, None, content_at(0, seed))
        self.blocks.put(self._source, TENANT, [put])
        return key

    def has(self, key: BlockKey) -> bool:
        return key in self.blocks.host

    def declined(self) -> int:
        """Puts that found no room."""
        return sum(count for _, count in self.blocks.host.stats(BLOCK_BYTES).dropped)

    def hear(self, kind: Kind, message: Any) -> None:
        for frame in FrameReader(TO_POOLED_STORE).feed(encode(kind, message, 1)):
            self._session.heard(cast("Any", self), frame)

    def send(self, kind: Kind, message: object, number: int) -> None:
        assert (kind, number) == (Kind.POOL_LENT, 1)
        self.answers.append(cast("PoolLent", message))

    async def encoded(self, took_s: float) -> tuple[BlockKey, PoolLent]:
        """What is lent when encoding took so long."""
        key = self.offer(1)
        await until(lambda: self.has(key))
        self.hear(Kind.POOL_READ, PoolRead(keys=(key,), wait_s=60, level="int8", positions=(0,)))
        assert await asyncio.to_thread(self.encoding.wait, 30)
        self.now += took_s
        self.blocks.host.expire(self.now)
        self.go.set()
        await until(lambda: bool(self.answers))
        return key, self.answers[0]


@pytest.fixture
async def lending(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lending]:
    made = Lending(threading.Event())
    encode_now = BlockCoder.encode

    def slow(self: BlockCoder, content: np.ndarray, level: str, start: int) -> bytes | None:
        made.encoding.set()
        assert made.go.wait(60)
        return encode_now(self, content, level, start)

    monkeypatch.setattr(BlockCoder, "encode", slow)
    yield made
    made.go.set()
    await made.lender.close()
    await made.blocks.close()


async def test_what_was_encoded_for_long_stays_for_a_whole_lease(lending: Lending) -> None:
    key, lent = await lending.encoded(took_s=5 * TTL_S)
    assert lent.lease is not None
    assert [(one.key, one.encoded_bytes > 0) for one in lent.blocks] == [(key, True)]
    assert lent.ttl_s == TTL_S
    lending.now += 0.9 * TTL_S
    other = lending.offer(2)
    await until(lambda: lending.declined() > 0)
    assert lending.has(key)
    assert not lending.has(other)
    lending.now += 0.2 * TTL_S
    third = lending.offer(3)
    await until(lambda: lending.has(third))
    assert not lending.has(key)


async def test_no_lease_but_the_one_that_is_said_keeps_it(lending: Lending) -> None:
    key, lent = await lending.encoded(took_s=0.5 * TTL_S)
    assert lent.lease is not None
    lending.hear(Kind.RELEASE, Release(owner=STORE, lease=lent.lease))
    other = lending.offer(2)
    await until(lambda: lending.has(other))
    assert not lending.has(key)
