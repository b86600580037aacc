"""The store's disk tier, by process: warm after a restart, and never believed."""

import asyncio
import resource
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from store_callers import (
    BLOCK_BYTES,
    FakeGateway,
    FakeWorker,
    contents,
    keys_of,
    prompt,
    until,
)
from store_kit import RealStore, real_store

from antiphon.errors import PeerError
from antiphon.types import BlockKey, StoreOp, Tier

pytestmark = pytest.mark.timeout(120)


def disk(folder: Path, **more: Any) -> dict[str, Any]:
    return {"disk_bytes": "64MiB", "dir": str(folder / "disk"), **more}


async def written(store: RealStore, keys: Sequence[BlockKey]) -> None:
    """Wait until all of these are on disk."""
    async with FakeGateway(store.path) as gateway:
        await gateway.until(lambda: gateway.on(Tier.DISK) >= set(keys))


async def test_a_restarted_store_is_warm_and_says_so(folder: Path) -> None:
    """LMCache 1788: the disk cache was not loaded after a restart."""
    async with real_store(folder, **disk(folder)) as store:
        async with FakeWorker(store.path) as worker:
            keys = await worker.put_prompt(blocks=20)
            await written(store, keys)
        await store.restart()
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
            assert gateway.on(Tier.HOST) == set()
            located = await worker.locate(keys)
            assert located.from_disk == len(keys)
            assert worker.copy(located) == contents(keys)
            await gateway.until(lambda: gateway.on(Tier.HOST) == set(keys))
            again = await worker.locate(keys)
            assert (again.from_disk, len(again.blocks)) == (0, len(keys))


async def test_stopped_in_order_everything_is_on_disk(folder: Path) -> None:
    async with real_store(folder, **disk(folder)) as store:
        async with FakeWorker(store.path) as worker:
            keys = await worker.put_prompt(blocks=8)
            await written(store, keys)
        assert await store.stop() == 0
        assert not store.path.exists()
        await store.start()
        async with FakeWorker(store.path) as worker:
            await until(lambda: _all(worker, keys))
            assert await worker.fetch(keys) == contents(keys)


async def _all(worker: FakeWorker, keys: Sequence[BlockKey]) -> bool:
    located = await worker.locate(keys)
    worker.release(located)
    return len(located.blocks) == len(keys)


async def test_what_memory_has_lost_is_read_from_disk(folder: Path) -> None:
    async with real_store(folder, **disk(folder)) as store, FakeWorker(store.path) as worker:
        keys = await worker.put_prompt(blocks=16)
        await written(store, keys)
        async with FakeGateway(store.path) as gateway:
            seed = 1
            while len(gateway.on(Tier.HOST) & set(keys)) == len(keys) or not gateway.held:
                await worker.put_prompt(blocks=16, seed=seed)
                seed += 1
            located = await worker.locate(keys)
            assert worker.copy(located) == contents(keys)
            assert located.from_disk > 0


async def test_files_that_were_swapped_cut_or_damaged_cost_misses_and_no_more(folder: Path) -> None:
    """LMCache 4385: the disk tier returned another request's KV, silently."""
    async with real_store(folder, **disk(folder)) as store:
        prompts: list[list[BlockKey]] = []
        async with FakeWorker(store.path) as worker:
            for seed in range(4):
                prompts.append(await worker.put_prompt(blocks=6, seed=seed))
                await written(store, prompts[-1])
        await store.kill()
        damage(folder / "disk")
        await store.start()
        async with FakeWorker(store.path) as worker:
            async with FakeGateway(store.path) as gateway:
                await gateway.until(lambda: True)
            for keys in prompts:
                copied = await worker.fetch(keys)
                assert copied == contents(keys)[: len(copied)]
            keys = await worker.put_prompt(blocks=6, seed=9)
            assert await worker.fetch(keys) == contents(keys)


def damage(disk_folder: Path) -> None:
    """Flip bytes in the middle of every file, and cut its end."""
    files = sorted(file for file in disk_folder.rglob("*") if file.stat().st_size > BLOCK_BYTES)
    assert files
    for file in files:
        data = bytearray(file.read_bytes())
        for at in range(len(data) // 3, len(data), len(data) // 5):
            data[at] ^= 0xFF
        file.write_bytes(bytes(data[: len(data) - 1000]))


async def test_a_key_that_is_on_disk_for_another_model_is_not_given(folder: Path) -> None:
    """LMCache 4463, vLLM 44250: KV of another model or adapter was served."""
    async with real_store(folder, **disk(folder)) as store:
        async with FakeWorker(store.path) as worker:
            keys = await worker.put_prompt()
            await written(store, keys)
        await until(lambda: store.mapped() == 1)
        async with FakeWorker(store.path, identity=bytes(32)) as other:
            assert (await other.locate(keys)).blocks == ()
            async with FakeGateway(store.path) as gateway:
                await gateway.until(lambda: True)
                assert gateway.on(Tier.DISK) == set()
        await until(lambda: store.mapped() == 1)
        async with FakeWorker(store.path) as worker:
            await until(lambda: _all(worker, keys))
            assert await worker.fetch(keys) == contents(keys)


async def test_killed_in_the_middle_of_writing_what_is_read_is_right(folder: Path) -> None:
    async with real_store(folder, **disk(folder)) as store:
        for seed in range(2):
            async with FakeWorker(store.path) as worker:
                keys = keys_of(prompt(48, seed))
                worker.send(*map(worker.sealed, keys, [None, *keys[:-1]]))
                await worker.has(keys[:20])
                await store.restart()
            async with FakeWorker(store.path) as worker:
                async with FakeGateway(store.path) as gateway:
                    await gateway.until(lambda: True)
                copied = await worker.fetch(keys)
                assert copied == contents(keys)[: len(copied)]


async def test_killed_in_the_middle_of_a_locate_nobody_waits_longer_than_its_death(
    folder: Path,
) -> None:
    async with real_store(folder, **disk(folder)) as store:
        async with FakeWorker(store.path) as worker:
            keys = await worker.put_prompt(blocks=40)
            await written(store, keys)
        await store.restart()
        async with FakeWorker(store.path) as worker:
            async with FakeGateway(store.path) as gateway:
                await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
            asking = [asyncio.create_task(worker.locate(keys)) for _ in range(20)]
            await asyncio.sleep(0)
            store.signal(signal.SIGKILL)
            for one in asking:
                try:
                    located = await asyncio.wait_for(one, 10)
                except PeerError:
                    continue
                assert len(located.blocks) <= len(keys)
        await store.restart()


async def test_a_folder_that_cannot_be_used_is_said_at_the_start(folder: Path) -> None:
    (folder / "disk").mkdir()
    (folder / "disk").chmod(0o755)
    with pytest.raises(PeerError, match="others can enter it"):
        async with real_store(folder, **disk(folder)):
            pass


async def test_a_folder_that_another_store_uses_is_said_at_the_start(folder: Path) -> None:
    """The second store was told when its first worker came, and had no disk tier from then on."""
    other = folder / "other"
    other.mkdir(mode=0o700)
    async with real_store(folder, **disk(folder)) as first, FakeWorker(first.path) as worker:
        with pytest.raises(PeerError, match=rf"another store \(process {first.pid}\) uses it"):
            async with real_store(other, **disk(folder)):
                pass
        keys = await worker.put_prompt()
        await written(first, keys)
        await first.restart()
        async with FakeWorker(first.path) as again:
            await until(lambda: _all(again, keys))


async def test_operators_ask(folder: Path) -> None:
    async with (
        real_store(folder, **disk(folder)) as store,
        FakeGateway(store.path) as gateway,
    ):
        assert [one.tier for one in (await gateway.ask(StoreOp.STATS)).stats] == [Tier.HOST]
        async with FakeWorker(store.path) as worker:
            keys = await worker.put_prompt(blocks=4)
            await gateway.until(lambda: len(gateway.held) == 8)
            both = (Tier.HOST, Tier.DISK)
            found = await gateway.ask(StoreOp.LOOKUP, [*keys, bytes(32)])
            assert found.tiers == (both,) * 4 + ((),)
            assert (await gateway.ask(StoreOp.PIN, keys[:2])).blocks == 2
            host, on_disk = (await gateway.ask(StoreOp.STATS)).stats
            assert (host.pinned_blocks, host.blocks, on_disk.blocks) == (2, 4, 4)
            assert (await gateway.ask(StoreOp.UNPIN, keys)).blocks == 2
            assert (await gateway.ask(StoreOp.VERIFY)).blocks == 0
            moved = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
            assert moved.blocks == 4
            assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.DISK,),) * 4
            assert (await gateway.ask(StoreOp.PREFETCH, keys[:3])).blocks == 3
            moved = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.HOST)
            assert moved.blocks == 4
            assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.HOST,),) * 4
            assert (await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DEVICE)).problem
            assert (await gateway.ask(StoreOp.LOOKUP, [b"short"])).problem
            assert (await gateway.ask(StoreOp.CLEAR, tenant=b"nobody")).blocks == 0
            assert (await gateway.ask(StoreOp.CLEAR, keys[:1])).blocks == 1
            assert (await gateway.ask(StoreOp.CLEAR, tenant=worker.tenant)).blocks == 3
            await gateway.until(lambda: not gateway.held)


async def test_blocks_in_doubt_are_on_no_tier_any_more(folder: Path) -> None:
    """What a failed step computed must not come back from where it was kept."""
    async with (
        real_store(folder, **disk(folder)) as store,
        FakeGateway(store.path) as gateway,
        FakeWorker(store.path) as worker,
    ):
        keys = await worker.put_prompt(blocks=4)
        await written(store, keys)
        more = keys_of(prompt(8), salt=worker.tenant)
        worker.send(*map(worker.sealed, more[4:], more[3:-1]))
        worker.doubt(*more[2:])
        left = {(key, tier) for key in keys[:2] for tier in (Tier.HOST, Tier.DISK)}
        await gateway.until(lambda: gateway.held == left)
        assert await worker.fetch(more) == contents(keys[:2])
        await store.restart()
        async with (
            FakeWorker(store.path, name="mixed-1") as again,
            FakeGateway(store.path) as watching,
        ):
            await watching.until(lambda: watching.on(Tier.DISK) == set(keys[:2]))
            assert (await again.locate(more)).from_disk == 2


async def test_blocks_of_a_tenant_are_cleared_and_those_of_others_stay(folder: Path) -> None:
    async with (
        real_store(folder, **disk(folder)) as store,
        FakeGateway(store.path) as gateway,
        FakeWorker(store.path, tenant=b"a") as one,
        FakeWorker(store.path, tenant=b"b", name="mixed-1") as other,
    ):
        gone, kept = await one.put_prompt(), await other.put_prompt()
        await written(store, [*gone, *kept])
        assert (await gateway.ask(StoreOp.CLEAR, tenant=b"a")).blocks == 3
        assert (await one.locate(gone)).blocks == ()
        assert await other.fetch(kept) == contents(kept)
    async with (
        real_store(folder, **disk(folder)) as store,
        FakeGateway(store.path) as gateway,
        FakeWorker(store.path),
    ):
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(kept))


async def test_a_full_disk_is_no_more_than_a_missing_tier(folder: Path) -> None:
    """The folder's files can't grow: what a full file system does to `write`."""
    async with real_store(folder, **disk(folder)) as store, FakeWorker(store.path) as worker:
        keys = await worker.put_prompt()
        await written(store, keys)
        limit(store.pid, (folder / "disk"))
        more = await worker.put_prompt(blocks=20, seed=1)
        assert await worker.fetch(more) == contents(more)
        assert await worker.fetch(keys) == contents(keys)


async def test_a_folder_that_is_deleted_is_said_once_with_what_to_do(folder: Path) -> None:
    async with (
        real_store(folder, **disk(folder)) as store,
        FakeWorker(store.path) as worker,
        FakeGateway(store.path) as gateway,
    ):
        keys = await worker.put_prompt()
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        shutil.rmtree(folder / "disk")
        more = await worker.put_prompt(blocks=20, seed=1)
        await gateway.until(lambda: not gateway.on(Tier.DISK))
        assert await worker.fetch([*more]) == contents(more)
        await until(lambda: any("deleted" in line for line in store.log))
    [line] = [line for line in store.log if "blocks are not kept on disk" in line]
    assert "antiphon restart store" in line


def limit(pid: int, disk_folder: Path) -> None:
    """No file of the process may grow from now on (`EFBIG`)."""
    size = max(file.stat().st_size for file in disk_folder.rglob("*"))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))
