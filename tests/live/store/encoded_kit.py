"""Stores of a pool whose blocks cross the network encoded, and workers whose KV is like a model's.

async with encoded_pool(folder, "int8") as (a, b):
    keys = await a.put(blocks=12)
    got = await b.fetch(keys)          # those that it asked peers for, as `Got`
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_kit import free_ports, pool_table
from store_callers import DEADLINE_S, IDENTITY, NUMERICS, FakeGateway, FakeWorker, prompt, until
from store_kit import on_disk, served

from antiphon.core.kv import BlockKeys
from antiphon.core.kv.lineage import with_lineage
from antiphon.live.store.pool import peer_reads
from antiphon.store.codec import BlockShape, write_kv_profile
from antiphon.types import BlockKey, KvShape, Locate, Located, StoreName, StoreOp, Tier, TierStats
from antiphon.wire import Kind
from codec_kit import HEADS, LAYERS, WIDTH, block_of, floats, profile

PAGES, PAGE_TOKENS = 4, 16
LAYOUT = (
    f"page[layers={LAYERS}, 2, kv_heads={HEADS}, page_tokens={PAGE_TOKENS}, width={WIDTH}] bf16"
)
SHAPE = KvShape(
    layout=LAYOUT,
    page_tokens=PAGE_TOKENS,
    block_tokens=PAGES * PAGE_TOKENS,
    page_bytes=LAYERS * 2 * HEADS * PAGE_TOKENS * WIDTH * 2,
    pages=512,
)
BLOCK_BYTES = PAGES * SHAPE.page_bytes
MEMORY = 128 * BLOCK_BYTES


def shape() -> BlockShape:
    found = BlockShape.in_layout(LAYOUT, PAGES)
    assert found is not None
    return found


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long to encode is waited for, nearly as long as its reader has."""
    monkeypatch.setattr(peer_reads, "_CODING_PATIENCE", 1e6)
    monkeypatch.setattr(peer_reads, "_ANSWER_SHARE", 0.9)


def content_at(position: int, seed: int) -> bytes:
    """A block's bytes."""
    start = position * SHAPE.block_tokens
    return block_of(1000 * seed + position, PAGES, PAGE_TOKENS, start).tobytes()


def error_of(found: bytes, wanted: bytes) -> float:
    """Root mean square, as a share of what was wanted."""
    one, other = (floats(shape().block(np.frombuffer(data, np.uint8))) for data in (found, wanted))
    return float(np.sqrt(((one - other) ** 2).mean() / (other**2).mean()))


def profile_file(folder: Path, identity: bytes = IDENTITY, seed: int = 100) -> Path:
    """A profile of the model that the workers have, or of another."""
    path = folder / "kv.profile"
    write_kv_profile(replace(profile(seed), identity=identity, coders={}), path)
    return path


def numerics(level: str, *, profiled: bool = False) -> str:
    """Of workers of a deployment at that level."""
    known = replace(profile(), identity=IDENTITY, coders={}).id if profiled else b""
    return with_lineage(NUMERICS, level, known)


class CodedWorker(FakeWorker):
    """Puts and fetches blocks that can be encoded."""

    def __init__(self, path: Path, numerics: str = NUMERICS) -> None:
        super().__init__(path, shape=SHAPE)
        self.hello = replace(self.hello, numerics=numerics)

    def keys(self, blocks: int, seed: int = 0) -> list[BlockKey]:
        names = BlockKeys(identity=IDENTITY, numerics=self.hello.numerics)
        keys: list[BlockKey] = []
        names.extend(keys, prompt(blocks, seed), blocks)
        return keys

    async def put(self, blocks: int, seed: int = 0) -> list[BlockKey]:
        """And wait until the store has them."""
        keys = self.keys(blocks, seed)
        parents = [None, *keys[:-1]]
        contents = [content_at(position, seed) for position in range(blocks)]
        self.send(*map(self.sealed, keys, parents, contents))
        await self.has(keys)
        return keys

    async def ask(self, keys: Sequence[BlockKey], **terms: Any) -> Located:
        locate = Locate(tenant=self.tenant, keys=tuple(keys), wait_s=20.0, **terms)
        return await self.calls.call(Kind.LOCATE, locate, (Kind.LOCATED,))

    async def get(
        self, keys: Sequence[BlockKey], **terms: Any
    ) -> tuple[list[bytes | None], set[BlockKey]]:
        """What came, and which of it is said to be lossy."""
        located = await self.ask(keys, **terms)
        try:
            return self.copy(located), {keys[at] for at in located.lossy}
        finally:
            self.release(located)

    async def get_all(
        self, keys: Sequence[BlockKey], **terms: Any
    ) -> tuple[list[bytes | None], set[BlockKey]]:
        """`get`, over and over until all come: a busy machine is late now and then."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                got, lossy = await self.get(keys, **terms)
                if len(got) == len(keys) and None not in got:
                    return got, lossy
                await asyncio.sleep(0.05)


@dataclass(eq=False)
class Side:
    """A store, with a worker and a gateway."""

    name: StoreName
    path: Path
    worker: CodedWorker
    gateway: FakeGateway

    async def knows(self, keys: Sequence[BlockKey]) -> None:
        """Wait until it knows that all can be had."""
        near = lambda: self.gateway.on(Tier.PEER) | self.gateway.on(Tier.HOST)  # noqa: E731
        await self.gateway.until(lambda: set(keys) <= near())

    async def peers(self) -> TierStats:
        """What the store counts of them."""
        stats = (await self.gateway.ask(StoreOp.STATS)).stats
        return next(one for one in stats if one.tier is Tier.PEER)


@asynccontextmanager
async def beside(name: str, path: Path, numerics: str) -> AsyncIterator[Side]:
    async with CodedWorker(path, numerics) as worker, FakeGateway(path) as gateway:
        yield Side(StoreName(name), path, worker, gateway)


@asynccontextmanager
async def encoded_pool(
    folder: Path,
    level: str,
    *,
    profile: Path | None = None,
    disk: bool = False,
    there: str | None = None,
    other_profile: Path | None = None,
) -> AsyncIterator[tuple[Side, Side]]:
    """Two stores on this loop, which see each other. `there`, `other_profile`: how the second one
    is set, if not like the first."""
    ports = free_ports(2)
    names = ("a", "b")
    levels, profiles = (level, there or level), (profile, other_profile or profile)
    async with AsyncExitStack() as until_end:
        sides = []
        for at, name in enumerate(names):
            own = folder / name
            own.mkdir(mode=0o700)
            table = pool_table(name, ports[at], [(names[1 - at], ports[1 - at])])
            table |= {"level": levels[at]}
            table |= {"profile": str(profiles[at])} if profiles[at] else {}
            path = await until_end.enter_async_context(
                served(own, pool=table, memory_bytes=MEMORY, **(on_disk(own) if disk else {}))
            )
            known = numerics(levels[at], profiled=profile is not None)
            sides.append(await until_end.enter_async_context(beside(name, path, known)))
        await meet(*sides)
        yield sides[0], sides[1]


async def meet(*sides: Side) -> None:
    """Each hears the others."""
    for number, side in enumerate(sides):
        keys = await side.worker.put(1, seed=900 + number)
        for other in sides:
            await other.knows(keys)


async def eventually_peers(side: Side, condition: Any) -> TierStats:
    """Its counts, once they are so."""
    seen: list[TierStats] = []

    async def look() -> bool:
        seen.append(await side.peers())
        return bool(condition(seen[-1]))

    async with asyncio.timeout(DEADLINE_S):
        await until(look)
    return seen[-1]
