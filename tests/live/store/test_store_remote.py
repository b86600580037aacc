"""The store beside a real Redis: what it took is there after a restart; its troubles are misses."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_kit import RealRedis, needs_redis  # pyright: ignore[reportMissingImports]
from store_callers import FakeGateway, FakeWorker, contents
from store_kit import real_store

from antiphon.errors import PeerError
from antiphon.types import StoreOp, Tier

pytestmark = [needs_redis, pytest.mark.timeout(120)]


@pytest.fixture
def redis(folder: Path) -> Iterator[RealRedis]:
    running = RealRedis(folder)
    yield running
    running.kill()


async def test_what_the_remote_took_is_read_after_the_store_was_killed(
    folder: Path, redis: RealRedis
) -> None:
    async with real_store(folder, remote=redis.url) as store:
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            keys = await worker.put_prompt(blocks=20)
            await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        await store.restart()
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            # A router must know of them before anybody asks: it sends nobody to look elsewhere.
            await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
            located = await worker.locate(keys)
            assert worker.copy(located) == contents(keys)
            assert located.from_disk == len(keys)
            both = (Tier.HOST, Tier.REMOTE)
            assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == (both,) * len(keys)


async def test_what_is_sealed_there_is_read_with_the_key_alone(
    folder: Path, redis: RealRedis
) -> None:
    """Killed, started without the key, and with it again; `clear` reaches what is its own."""
    file = folder / "kv.key"
    file.write_text("5a" * 32)
    file.chmod(0o600)
    key = {"at_rest_key_file": str(file)}
    async with (
        real_store(folder, remote=redis.url, **key) as store,
        FakeWorker(store.path) as worker,
        FakeGateway(store.path) as gateway,
    ):
        keys = await worker.put_prompt(blocks=8)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
    kept = b"".join(redis.client().get(name) or b"" for name in redis.client().keys("*"))
    assert len(kept) > sum(map(len, contents(keys)))
    assert not any(block[:64] in kept for block in contents(keys))
    async with (
        real_store(folder, remote=redis.url) as store,
        FakeWorker(store.path) as worker,
        FakeGateway(store.path) as gateway,
    ):
        assert (await worker.locate(keys)).blocks == ()
        assert (await gateway.ask(StoreOp.CLEAR)).blocks == 0
    async with (
        real_store(folder, remote=redis.url, **key) as store,
        FakeWorker(store.path) as worker,
        FakeGateway(store.path) as gateway,
    ):
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        assert await worker.fetch(keys) == contents(keys)
        await gateway.ask(StoreOp.CLEAR)
        assert redis.client().keys("*") == []


async def test_blocks_in_doubt_leave_the_remote_too(folder: Path, redis: RealRedis) -> None:
    async with real_store(folder, remote=redis.url) as store:
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            keys = await worker.put_prompt()
            await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
            worker.doubt(*keys[1:])
            await gateway.until(lambda: gateway.on(Tier.REMOTE) == {keys[0]})
        await store.restart()
        async with FakeWorker(store.path) as worker:
            assert (await worker.locate(keys)).from_disk == 1


async def test_a_remote_that_is_stopped_or_gone_is_a_miss_in_time(
    folder: Path, redis: RealRedis
) -> None:
    """LMCache 1810: killing the remote's master garbled answers. Mooncake 1088: 60 s stalls."""
    async with real_store(folder, remote=redis.url) as store:
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            keys = await worker.put_prompt()
            await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        await store.restart()
        redis.send(signal.SIGSTOP)
        async with FakeWorker(store.path) as worker:
            assert (await worker.locate(keys, wait_s=0.5)).blocks == ()
            more = await worker.put_prompt(seed=1)
            redis.send(signal.SIGCONT)
            redis.kill()
            assert (await worker.locate(keys, wait_s=0.5)).blocks == ()
            assert await worker.fetch(more) == contents(more)


async def test_what_somebody_wrote_into_the_remote_is_not_believed(
    folder: Path, redis: RealRedis
) -> None:
    """LMCache 4385: a tier returned another request's KV, silently."""
    async with real_store(folder, remote=redis.url) as store:
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            keys = await worker.put_prompt(blocks=4)
            await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        client = redis.client()
        names = sorted(client.keys("*"))
        values = [client.get(name) for name in names]
        for name, value in zip(names, [*values[1:], values[0]], strict=True):
            client.set(name, value)  # each lies where another belongs
        await store.restart()
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            assert (await worker.locate(keys)).blocks == ()
            remote = (await gateway.ask(StoreOp.STATS)).stats[-1]
            assert dict(remote.dropped)["read_damaged"] > 0


async def test_an_address_that_is_none_is_said_at_the_start(folder: Path) -> None:
    with pytest.raises(PeerError, match=r"store\.remote must begin with"):
        async with real_store(folder, remote="http://127.0.0.1"):
            pass
