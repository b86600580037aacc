"""Stores of a pool, over real sockets: blocks are found wherever they are, and are right."""

import asyncio
import threading
from pathlib import Path

import pytest
from pool_kit import (
    BLOCKS,
    MEMORY,
    Pooled,
    eventually_all,
    free_ports,
    pool_table,
    pooled,
    right_or_missing,
    settled,
)
from store_callers import FakeGateway, FakeWorker, content_of, contents, until
from store_kit import on_disk, served

from antiphon.core.store_pool import home_of
from antiphon.errors import PeerError, UsageError
from antiphon.live.store.pool.coded_blocks import CodedBlocks
from antiphon.live.store.pool.pool_dial import pool_socket
from antiphon.types import BlockKey, StoreOp, Tier
from antiphon.wire import Frame


def at_home(store: Pooled, keys: list[BlockKey], *others: Pooled) -> set[BlockKey]:
    weights = {one.name: float(BLOCKS) for one in (store, *others)}
    return {key for key in keys if home_of(key, weights) == store.name}


async def test_what_one_store_has_a_worker_beside_another_fetches(folder: Path) -> None:
    async with pooled(folder, "a", "b") as (a, b):
        keys = await a.worker.put_prompt(blocks=16)
        await b.gateway.until(lambda: set(keys) <= b.gateway.on(Tier.PEER))
        assert await b.worker.fetch(keys, wait_s=20.0) == contents(keys)
        await settled(a, b, keys=keys)
        assert b.gateway.on(Tier.HOST) >= at_home(b, keys, a)


async def test_cold_blocks_go_home_and_their_copies_go_first(folder: Path) -> None:
    """Three stores of 256 blocks hold what they are home to, whoever has put it."""
    async with pooled(folder, "a", "b", "c") as (a, b, c):
        prompts = [await a.worker.put_prompt(blocks=20, seed=seed) for seed in range(22)]
        keys = [key for prompt in prompts for key in prompt]
        found = 0
        for prompt in prompts:
            found += right_or_missing(prompt, await c.worker.fetch(prompt, wait_s=20.0))
        assert found > BLOCKS, "one store alone can't have had so many"
        held = {key for store in (a, b, c) for key in keys if store.has(key)}
        assert len(held) > BLOCKS


async def test_what_is_in_doubt_is_found_nowhere(folder: Path) -> None:
    async with pooled(folder, "a", "b") as (a, b):
        keys = await a.worker.put_prompt(blocks=8)
        await settled(a, b, keys=keys)
        a.worker.doubt(*keys)
        for one in (a, b):
            await one.gateway.until(lambda one=one: not _known(one, keys))
        assert await b.worker.fetch(keys) == []


async def test_what_an_operator_clears_is_found_at_no_store(folder: Path) -> None:
    async with pooled(folder, "a", "b") as (a, b):
        keys = await a.worker.put_prompt(blocks=8)
        await settled(a, b, keys=keys)
        answer = await a.gateway.ask(StoreOp.CLEAR, keys)
        assert not answer.problem
        for one in (a, b):
            await one.gateway.until(lambda one=one: not _known(one, keys))
        assert await b.worker.fetch(keys) == []
        assert await a.worker.fetch(keys) == []


def _known(store: Pooled, keys: list[BlockKey]) -> bool:
    return any(key in keys for key, _ in store.gateway.held)


async def test_a_store_that_ends_is_a_miss_and_one_that_comes_back_is_found(folder: Path) -> None:
    [port_a, port_b] = free_ports(2)
    for name in "ab":
        (folder / name).mkdir(mode=0o700)
    pool_a = pool_table("a", port_a, [("b", port_b)])
    pool_b = pool_table("b", port_b, [])
    async with served(folder / "a", pool=pool_a) as path_a, FakeWorker(path_a) as worker:
        async with served(folder / "b", pool=pool_b) as path_b, FakeWorker(path_b) as other:
            keys = await other.put_prompt(blocks=6)
            await eventually_all(worker, keys)
            far = await other.put_prompt(blocks=6, seed=5)
        assert right_or_missing(far, await worker.fetch(far)) < len(far) + 1
        async with served(folder / "b", pool=pool_b) as path_b:
            await eventually_all(worker, await _put_at(path_b))


async def _put_at(path: Path) -> list[BlockKey]:
    async with FakeWorker(path) as other:
        return await other.put_prompt(blocks=6, seed=9)


async def test_a_store_without_workers_takes_up_the_pools_model(folder: Path) -> None:
    """It is home to blocks all the same."""
    [port_a, port_b] = free_ports(2)
    for name in "ab":
        (folder / name).mkdir(mode=0o700)
    async with (
        served(folder / "b", pool=pool_table("b", port_b, [])) as path_b,
        served(folder / "a", pool=pool_table("a", port_a, [("b", port_b)])) as path_a,
        FakeWorker(path_a) as worker,
    ):
        keys = await worker.put_prompt(blocks=16)
        async with FakeWorker(path_b) as other:
            await eventually_all(other, keys)


async def test_stores_of_other_models_are_not_in_one_pool(folder: Path) -> None:
    [port_a, port_b] = free_ports(2)
    for name in "ab":
        (folder / name).mkdir(mode=0o700)
    async with (
        served(folder / "b", pool=pool_table("b", port_b, [])) as path_b,
        served(folder / "a", pool=pool_table("a", port_a, [("b", port_b)])) as path_a,
        FakeWorker(path_b, identity=bytes(32)) as other,
        FakeWorker(path_a) as worker,
    ):
        mine, theirs = await worker.put_prompt(4), await other.put_prompt(4)
        assert mine == theirs, "the kit names blocks of both models alike"
        fresh = await worker.put_prompt(4, seed=3)
        assert await other.fetch(fresh, wait_s=1.0) == []


async def test_old_files_are_read_before_they_are_spoken_of(folder: Path) -> None:
    """Of what a store finds on its disk, what was damaged meanwhile is never told to the others."""
    [port_a, port_b] = free_ports(2)
    for name in "ab":
        (folder / name).mkdir(mode=0o700)
    disk = on_disk(folder / "b")
    pool_b = pool_table("b", port_b, [])
    async with served(folder / "b", pool=pool_b, **disk) as path_b, FakeWorker(path_b) as other:
        keys = await other.put_prompt(blocks=8)
        await until(lambda: len(_records(folder / "b" / "kv", keys)) == len(keys))
    bad = keys[5]
    _damage(folder / "b" / "kv", bad)
    pool_a = pool_table("a", port_a, [("b", port_b)])
    async with (
        served(folder / "b", pool=pool_b, **disk) as path_b,
        served(folder / "a", pool=pool_a) as path_a,
        FakeWorker(path_b) as other,
        Remembers(path_a) as gateway,
        FakeWorker(path_a) as worker,
    ):
        good = {key for key in keys if key != bad}
        await gateway.until(lambda: gateway.on(Tier.PEER) == good)
        await eventually_all(worker, keys[:5])
        got = await worker.fetch(keys, wait_s=5.0)
        assert right_or_missing(keys, got) == 5
        assert (bad, Tier.PEER) not in gateway.ever


class Remembers(FakeGateway):
    """What it was ever told."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.ever: set[tuple[BlockKey, Tier]] = set()

    def _heard(self, frame: Frame) -> None:
        super()._heard(frame)
        self.ever |= self.held


def _records(folder: Path, keys: list[BlockKey]) -> list[BlockKey]:
    content = b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())
    return [key for key in keys if content_of(key) in content]


def _damage(folder: Path, key: BlockKey) -> None:
    """One bit of its content."""
    for file in folder.rglob("*"):
        content = bytearray(file.read_bytes()) if file.is_file() else bytearray()
        at = content.find(content_of(key))
        if at >= 0:
            content[at + 100] ^= 1
            file.write_bytes(content)
            return
    raise AssertionError("the block is not on disk")


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 200])
async def test_strangers_do_no_harm(folder: Path, said: bytes) -> None:
    async with pooled(folder, "a", "b") as (a, b):
        keys = await a.worker.put_prompt(blocks=4)
        reader, writer = await asyncio.open_unix_connection(pool_socket(a.port))
        writer.write(said)
        await writer.drain()
        if said:
            assert await reader.read() == b"", "nothing is said to who is no store"
        writer.close()
        await eventually_all(b.worker, keys)


async def test_a_worker_of_another_shape_is_still_refused(folder: Path) -> None:
    async with pooled(folder, "a", "b") as (a, _):
        with pytest.raises(PeerError):
            await FakeWorker(a.path, identity=bytes(32)).open()


async def test_a_store_that_leaves_in_order_leaves_what_only_it_had(folder: Path) -> None:
    """Nothing is asked for meanwhile: b has it because a was told to end."""
    one, two = free_ports(2)
    folders = {name: folder / name for name in "ab"}
    for own in folders.values():
        own.mkdir(mode=0o700)
    tables = {"a": pool_table("a", one, [("b", two)]), "b": pool_table("b", two, [("a", one)])}
    async with (
        served(folders["b"], pool=tables["b"], memory_bytes=MEMORY) as path,
        FakeWorker(path) as there,
        FakeGateway(path) as gateway,
    ):
        async with (
            served(folders["a"], pool=tables["a"], memory_bytes=MEMORY) as other,
            FakeWorker(other) as here,
        ):
            keys = await here.put_prompt(blocks=24)
            await gateway.until(lambda: set(keys) <= gateway.on(Tier.PEER))
        assert await there.fetch(keys, wait_s=10.0) == contents(keys)
        assert set(keys) <= gateway.on(Tier.HOST)


async def test_a_pool_that_can_not_be_served_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers ask again and again; once it can be served, all is there, the disk too."""

    def fails(self: CodedBlocks, *_: object, **__: object) -> None:
        raise UsageError("no port is left")

    [port] = free_ports(1)
    opened = CodedBlocks.open
    disk = on_disk(folder)
    async with served(folder, pool=pool_table("a", port, []), **disk) as path:
        before = _kv_threads()
        monkeypatch.setattr(CodedBlocks, "open", fails)
        for _ in range(3):
            with pytest.raises(PeerError, match="no port is left"):
                await FakeWorker(path).open()
        await until(lambda: _kv_threads() <= before)
        monkeypatch.setattr(CodedBlocks, "open", opened)
        async with FakeWorker(path) as worker, FakeGateway(path) as gateway:
            keys = await worker.put_prompt(blocks=4)
            await gateway.until(lambda: set(keys) <= gateway.on(Tier.DISK))


def _kv_threads() -> int:
    return sum(one.name.startswith("kv-") for one in threading.enumerate())
