"""Those who speak with a store: a worker with real memory, a gateway that watches, raw bytes.

async with FakeWorker(path) as worker:
    keys = await worker.put_prompt(blocks=3)
    assert await worker.fetch(keys) == contents(keys)
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from antiphon.core.kv.block_keys import BlockKeys
from antiphon.errors import PeerError
from antiphon.live.descriptors import first_frame
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import (
    BlockKey,
    Forget,
    Incarnation,
    KvDump,
    KvEvents,
    KvShape,
    Locate,
    Located,
    Put,
    PutBlock,
    Release,
    StoreAnswer,
    StoreAsk,
    StoreHello,
    StoreRefused,
    StoreWatch,
    StoreWelcome,
    Tier,
    WorkerId,
)
from antiphon.types import PagePull as Pull
from antiphon.types.kv_store import STORE
from antiphon.wire import (
    FROM_STORE,
    Calls,
    Ending,
    Frame,
    FrameStream,
    Kind,
    decode,
    encode,
    owned_by_loop,
)

SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=1024, pages=256)
BLOCK_PAGES = SHAPE.block_tokens // SHAPE.page_tokens
BLOCK_BYTES = BLOCK_PAGES * SHAPE.page_bytes
IDENTITY = bytes(range(32))
NUMERICS = "test"
TENANT = b"tenant"
DEADLINE_S = 30.0
CLUSTER = {"heartbeat_s": 0.05, "lost_after_s": 20.0}


# ── what is put ──────────────────────────────────────────────────────────────────────────────────


def keys_of(tokens: Sequence[int], *, salt: bytes = TENANT) -> list[BlockKey]:
    keys: list[BlockKey] = []
    names = BlockKeys(
        identity=IDENTITY, numerics=NUMERICS, salt=salt, block_tokens=SHAPE.block_tokens
    )
    names.extend(keys, tokens, len(tokens) // SHAPE.block_tokens)
    return keys


def prompt(blocks: int, seed: int = 0) -> list[int]:
    return [int(x) for x in np.random.default_rng(seed).integers(0, 9999, blocks * 64)]


def content_of(key: BlockKey) -> bytes:
    """What a block of this name holds here."""
    seed = int.from_bytes(key[:8], "little")
    return np.random.default_rng(seed).integers(0, 256, BLOCK_BYTES, np.uint8).tobytes()


def contents(keys: Sequence[BlockKey]) -> list[bytes]:
    return [content_of(key) for key in keys]


def reshaped(**changes: Any) -> KvShape:
    return replace(SHAPE, **changes)


# ── who speaks ───────────────────────────────────────────────────────────────────────────────────


async def raw_connection(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    await asyncio.get_running_loop().sock_connect(connection, os.fspath(path))
    return connection


async def answer_to(
    path: Path, first: bytes, descriptors: Sequence[int] = ()
) -> tuple[object, list[int], socket.socket]:
    """What the store says to a first message, and the descriptors that came with it."""
    connection = await raw_connection(path)
    try:
        socket.send_fds(connection, [first], list(descriptors))
        got: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            frame = await first_frame(connection, FROM_STORE, got)
        return (None if frame is None else decode(frame)), got, connection
    except BaseException:
        connection.close()
        raise


class FakeWorker:
    """A worker with real memory, without an engine. `async with`, or `open` and `close`."""

    def __init__(
        self,
        path: Path,
        *,
        name: str = "mixed-0",
        shape: KvShape = SHAPE,
        identity: bytes = IDENTITY,
        tenant: bytes = TENANT,
        cluster: dict[str, float] | None = None,
    ) -> None:
        self.region = OwnedRegion(shape)
        self.hello = StoreHello(
            worker=WorkerId(name),
            incarnation=Incarnation(secrets.token_hex(8)),
            kv=shape,
            identity=identity,
            numerics=NUMERICS,
        )
        self.tenant = tenant
        self.welcome: StoreWelcome | None = None
        self.ending: Ending | None = None
        self._path = path
        self._beat = {**CLUSTER, **(cluster or {})}
        self._next = 0
        self._memory: MappedRegion | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def open(self) -> None:
        """Raises `PeerError` with the store's refusal."""
        first = encode(Kind.STORE_HELLO, self.hello)
        answer, descriptors, connection = await answer_to(self._path, first, [self.region.fd])
        try:
            if isinstance(answer, StoreRefused):
                raise PeerError(f"{answer.reason}: {answer.message}")
            assert isinstance(answer, StoreWelcome)
            [descriptor] = descriptors
            self.welcome = answer
            self._memory = MappedRegion(descriptor, self.region)
        except BaseException:
            connection.close()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.stream = FrameStream(FROM_STORE, clock=time.monotonic)
        self.calls = Calls(self.stream, "the store", timeout_s=DEADLINE_S)
        self.stream.on_frame = self._heard
        self.stream.on_end = self._over
        loop = asyncio.get_running_loop()
        with owned_by_loop(connection):
            await loop.create_unix_connection(lambda: self.stream, sock=connection)
        self.stream.beat(
            self._beat["heartbeat_s"], self._beat["lost_after_s"], lambda: (Kind.HEARTBEAT, None)
        )

    def close(self) -> None:
        if self.welcome is not None:
            self.stream.end("closed here")
        if self._memory is not None:
            self._memory.close()
        self.region.close()

    def _heard(self, frame: Frame) -> None:
        if frame.kind != Kind.HEARTBEAT:
            self.calls.answered(frame)

    def _over(self, ending: Ending) -> None:
        self.ending = ending
        self.calls.fail(ending.reason)

    # ── puts ─────────────────────────────────────────────────────────────────────────────────

    def sealed(self, key: BlockKey, parent: BlockKey | None, content: bytes = b"") -> PutBlock:
        """Write a block into the next pages of our own memory, and seal it."""
        pages = [(self._next + page) % self.hello.kv.pages for page in range(BLOCK_PAGES)]
        self._next = (pages[-1] + 1) % self.hello.kv.pages
        self.region.begin_write(pages)
        table = self.region.content.reshape(self.hello.kv.pages, -1)
        table[pages] = np.frombuffer(content or content_of(key), np.uint8).reshape(BLOCK_PAGES, -1)
        return PutBlock(key=key, parent=parent, pages=self.region.seal(pages))

    def send(self, *blocks: PutBlock) -> None:
        self.stream.send(Kind.PUT, Put(tenant=self.tenant, blocks=blocks))

    def doubt(self, *keys: BlockKey) -> None:
        self.stream.send(Kind.FORGET, Forget(keys))

    async def put_prompt(self, blocks: int = 3, seed: int = 0) -> list[BlockKey]:
        """Put a prompt's blocks, and wait until the store has all of them."""
        keys = keys_of(prompt(blocks, seed), salt=self.tenant)
        parents = [None, *keys[:-1]]
        self.send(*map(self.sealed, keys, parents))
        await self.has(keys)
        return keys

    async def has(self, keys: Sequence[BlockKey]) -> None:
        """Wait until the store can give all of these."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                located = await self.locate(keys)
                self.release(located)
                if len(located.blocks) == len(keys):
                    return
                await asyncio.sleep(0.01)

    # ── fetches ──────────────────────────────────────────────────────────────────────────────

    async def locate(self, keys: Sequence[BlockKey], wait_s: float = 2.0) -> Located:
        locate = Locate(tenant=self.tenant, keys=tuple(keys), wait_s=wait_s)
        return await self.calls.call(Kind.LOCATE, locate, (Kind.LOCATED,))

    def release(self, located: Located) -> None:
        if located.lease is not None:
            self.stream.send(Kind.RELEASE, Release(owner=WorkerId(STORE), lease=located.lease))

    def copy(self, located: Located) -> list[bytes | None]:
        """Each block's bytes; None: it was not what it should be."""
        assert self._memory is not None
        copied: list[bytes | None] = []
        for pages in located.blocks:
            targets = [(self._next + page) % self.hello.kv.pages for page in range(BLOCK_PAGES)]
            good = self._memory.pull(list(map(Pull, pages, targets)))
            table = self.region.content.reshape(self.hello.kv.pages, -1)
            copied.append(table[targets].tobytes() if all(good) else None)
        return copied

    async def fetch(self, keys: Sequence[BlockKey], wait_s: float = 2.0) -> list[bytes | None]:
        located = await self.locate(keys, wait_s)
        try:
            return self.copy(located)
        finally:
            self.release(located)


class FakeGateway:
    """Watches a store. `held` is what it believes; `asks` are answered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.held: set[tuple[BlockKey, Tier]] = set()
        self.dumps = 0
        self.next = 0
        self._whole = False
        self._news = asyncio.Event()

    async def __aenter__(self) -> "FakeGateway":
        connection = await raw_connection(self._path)
        first = encode(Kind.STORE_WATCH, StoreWatch(gateway=Incarnation(secrets.token_hex(8))))
        await asyncio.get_running_loop().sock_sendall(connection, first)
        self.stream = FrameStream(FROM_STORE, clock=time.monotonic)
        self.calls = Calls(self.stream, "the store", timeout_s=DEADLINE_S)
        self.stream.on_frame = self._heard
        self.stream.on_end = lambda ending: self.calls.fail(ending.reason)
        with owned_by_loop(connection):
            await asyncio.get_running_loop().create_unix_connection(
                lambda: self.stream, sock=connection
            )
        self.stream.beat(
            CLUSTER["heartbeat_s"], CLUSTER["lost_after_s"], lambda: (Kind.HEARTBEAT, None)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stream.end("closed here")

    async def ask(self, op: Any, keys: Sequence[BlockKey] = (), **more: Any) -> StoreAnswer:
        ask = StoreAsk(op=op, keys=tuple(keys), **more)
        return await self.calls.call(Kind.STORE_ASK, ask, (Kind.STORE_ANSWER,))

    def on(self, tier: Tier) -> set[BlockKey]:
        return {key for key, where in self.held if where is tier}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not (self._whole and condition()):
                self._news.clear()
                await self._news.wait()

    def _heard(self, frame: Frame) -> None:
        match decode(frame):
            case None:
                return
            case KvDump() as dump:
                if dump.begins:
                    self.held.clear()
                    self.dumps += 1
                self.held.update(dump.blocks)
                self.next, self._whole = dump.next, dump.ends
            case KvEvents() as events:
                assert events.first == self.next, "a gap that nobody asked for"
                for change in events.changes:
                    where = (change.key, change.tier)
                    (self.held.add if change.stored else self.held.discard)(where)
                self.next += len(events.changes)
            case _:
                self.calls.answered(frame)
        self._news.set()


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Asked over and over until it is true."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            result = condition()
            if result if isinstance(result, bool) else await result:
                return
            await asyncio.sleep(0.01)
