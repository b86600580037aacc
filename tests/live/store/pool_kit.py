"""Stores of a pool on this host's loopback: on this loop, or as processes.

async with pooled(folder, "a", "b") as (a, b):
    keys = await a.worker.put_prompt(blocks=12)
    await settled(a, b)
    assert await b.worker.fetch(keys) == contents(keys)
"""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store_callers import BLOCK_BYTES, FakeGateway, FakeWorker, content_of, until
from store_kit import RealStore, served

from antiphon.core.store_pool import home_of
from antiphon.types import BlockKey, StoreName, Tier

BLOCKS = 256
"""What each store's memory has room for."""
MEMORY = BLOCKS * BLOCK_BYTES


@dataclass(eq=False)
class Pooled:
    """A store of the pool, with a worker and a gateway beside it."""

    name: StoreName
    path: Path
    worker: FakeWorker
    gateway: FakeGateway
    port: int = 0

    def has(self, key: BlockKey) -> bool:
        """In its own memory, as its gateway was told."""
        return (key, Tier.HOST) in self.gateway.held


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def pool_table(name: str, port: int, peers: Sequence[tuple[str, int]]) -> dict[str, object]:
    return {
        "name": name,
        "listen": f"127.0.0.1:{port}",
        "peers": [f"{peer}@127.0.0.1:{there}" for peer, there in peers],
    }


@asynccontextmanager
async def pooled(folder: Path, *names: str, **store: Any) -> AsyncIterator[tuple[Pooled, ...]]:
    """Stores on this loop; each is told of the first one only."""
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    async with AsyncExitStack() as until_end:
        stores = []
        for name in names:
            own = folder / name
            own.mkdir(mode=0o700)
            known = [(names[0], ports[names[0]])] if name != names[0] else []
            path = await until_end.enter_async_context(
                served(
                    own,
                    pool=pool_table(name, ports[name], known),
                    **{"memory_bytes": MEMORY, **store},
                )
            )
            stores.append(await beside(until_end, StoreName(name), path, ports[name]))
        await all_connected(stores)
        yield tuple(stores)


async def beside(until_end: AsyncExitStack, name: StoreName, path: Path, port: int = 0) -> Pooled:
    """A worker and a gateway for the store at `path`."""
    worker = await until_end.enter_async_context(FakeWorker(path))
    gateway = await until_end.enter_async_context(FakeGateway(path))
    return Pooled(name, path, worker, gateway, port)


async def all_connected(stores: Sequence[Pooled]) -> None:
    """Each store hears each other one: seen by a block of its own that all are told of."""
    for number, one in enumerate(stores):
        [key] = await one.worker.put_prompt(blocks=1, seed=1000 + number)
        for other in stores:
            await other.gateway.until(lambda other=other, key=key: _knows(other, key))


def _knows(store: Pooled, key: BlockKey) -> bool:
    return bool({(key, Tier.HOST), (key, Tier.PEER)} & store.gateway.held)


async def settled(*stores: Pooled, keys: Sequence[BlockKey]) -> None:
    """The blocks are where they live while they are cold."""
    weights = {store.name: float(BLOCKS) for store in stores}
    by_name = {store.name: store for store in stores}
    for key in keys:
        home = by_name[home_of(key, weights)]
        await home.gateway.until(lambda home=home, key=key: home.has(key))


# ── processes ────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class PoolOfProcesses:
    """Stores that are killed, started anew, and added."""

    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    stores: dict[str, RealStore] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)

    async def add(self, name: str, **store: object) -> RealStore:
        """One more, which knows one of those that are there."""
        [self.ports[name]] = free_ports(1)
        known = [(peer, self.ports[peer]) for peer in list(self.stores)[:1]]
        own = self.folder / name
        own.mkdir(mode=0o700, exist_ok=True)
        table = pool_table(name, self.ports[name], known)
        options = {"memory_bytes": MEMORY, **self.options, **store}
        running = RealStore(own, options, {}, table)
        self.stores[name] = running
        await running.start()
        return running


@asynccontextmanager
async def processes(folder: Path, *names: str, **store: object) -> AsyncIterator[PoolOfProcesses]:
    """A pool of store processes; killed at the end."""
    pool = PoolOfProcesses(folder, options=dict(store))
    try:
        for name in names:
            await pool.add(name)
        yield pool
    finally:
        for running in pool.stores.values():
            await running.kill()
            print(f"{running.path}:", *running.log, sep="\n")  # noqa: T201 - where a test fails


def right_or_missing(keys: Sequence[BlockKey], got: Sequence[bytes | None]) -> int:
    """How many blocks came; each is what its key says."""
    for key, content in zip(keys, got, strict=False):
        assert content is None or content == content_of(key)
    return sum(content is not None for content in got)


async def eventually_all(worker: FakeWorker, keys: Sequence[BlockKey]) -> None:
    """The worker can fetch all of these, and they are right."""

    async def fetched() -> bool:
        return right_or_missing(keys, await worker.fetch(keys, wait_s=10.0)) == len(keys)

    await until(fetched)
