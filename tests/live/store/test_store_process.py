"""The store as a process of its own: what is put is found, by others too, and nothing else is."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_callers import (
    BLOCK_BYTES,
    DEADLINE_S,
    IDENTITY,
    FakeGateway,
    FakeWorker,
    answer_to,
    contents,
    keys_of,
    prompt,
    until,
)
from store_kit import real_store, served, stopped

from antiphon.core.kv.block_keys import BlockKeys
from antiphon.errors import PeerError
from antiphon.types import Locate, OfferedPage, Put, PutBlock, StoreOp, Tier
from antiphon.wire import Kind, encode

pytestmark = pytest.mark.timeout(120)


# ── putting and fetching ─────────────────────────────────────────────────────────────────────────


async def test_what_one_worker_put_another_fetches_to_the_byte(folder: Path) -> None:
    async with (
        real_store(folder) as store,
        FakeWorker(store.path) as one,
        FakeWorker(store.path, name="mixed-1") as other,
    ):
        keys = await one.put_prompt(blocks=5)
        assert await other.fetch(keys) == contents(keys)
        assert await one.fetch(keys[:2]) == contents(keys[:2])


async def test_blocks_outlive_the_worker_that_computed_them(folder: Path) -> None:
    async with served(folder) as path:
        async with FakeWorker(path) as one:
            keys = await one.put_prompt()
        async with FakeWorker(path) as successor:
            assert await successor.fetch(keys) == contents(keys)


async def test_the_longest_prefix_is_found_and_nothing_behind_a_gap(folder: Path) -> None:
    """Mooncake 4153: partial hash hits reused the wrong prefix."""
    async with served(folder) as path, FakeWorker(path) as worker:
        keys = await worker.put_prompt(blocks=4)
        unknown = keys_of(prompt(1, seed=99))
        assert await worker.fetch([*keys, *unknown]) == contents(keys)
        assert await worker.fetch([keys[0], *unknown, *keys[1:]]) == contents(keys[:1])
        located = await worker.locate([*unknown, *keys])
        assert (located.lease, located.blocks) == (None, ())


async def test_a_block_that_was_reassigned_before_it_was_copied_is_not_kept(folder: Path) -> None:
    """LMCache 4991: a failed write stayed visible to look-ups, and the answers were gibberish."""
    async with served(folder) as path, FakeWorker(path) as worker:
        late, good = keys_of(prompt(1, seed=1)), keys_of(prompt(1, seed=2))
        block = worker.sealed(late[0], None)
        worker.region.begin_write([block.pages[-1].page])
        worker.send(block, worker.sealed(good[0], None))
        await worker.has(good)
        assert (await worker.locate(late)).blocks == ()


async def test_a_block_that_lies_about_its_bytes_is_not_kept(folder: Path) -> None:
    async with served(folder) as path, FakeWorker(path) as worker:
        keys, good = keys_of(prompt(3, seed=1)), keys_of(prompt(1, seed=2))
        honest = worker.sealed(keys[0], None)
        first = honest.pages[0]
        wrong_sum = (OfferedPage(first.page, first.generation, first.checksum ^ 1),)
        nowhere = (OfferedPage(2**40, 2, 0),)
        negative = (OfferedPage(-1, -2, -3),)
        for key, page in zip(keys, (wrong_sum, nowhere, negative), strict=True):
            worker.send(PutBlock(key=key, parent=None, pages=page + honest.pages[1:]))
        worker.send(worker.sealed(good[0], None))
        await worker.has(good)
        for key in keys:
            assert (await worker.locate([key])).blocks == ()


async def test_two_tenants_with_equal_prompts_have_nothing_in_common(folder: Path) -> None:
    """LMCache 4825: the salt was dropped, and one tenant's hit told another what was cached."""
    async with (
        served(folder) as path,
        FakeWorker(path, tenant=b"a") as one,
        FakeWorker(path, tenant=b"b", name="mixed-1") as other,
    ):
        keys = await one.put_prompt(seed=7)
        theirs = keys_of(prompt(3, seed=7), salt=b"b")
        assert (await other.locate(theirs)).blocks == ()
        assert not set(keys) & set(theirs)


async def test_old_blocks_go_when_memory_is_full_and_what_is_given_is_right(folder: Path) -> None:
    """LMCache 900: a server without eviction ran out of memory."""
    async with served(folder) as path, FakeWorker(path) as worker:
        slots = 2**20 // BLOCK_BYTES
        keys = []
        for seed in range(slots // 8 + 4):
            keys = await worker.put_prompt(blocks=8, seed=seed)
        assert await worker.fetch(keys) == contents(keys)
        async with FakeGateway(path) as gateway:
            [host] = (await gateway.ask(StoreOp.STATS)).stats
            assert host.blocks <= slots
            assert host.limit_bytes == 2**20
            assert host.evicted_blocks_total >= 4 * 8
            await gateway.until(lambda: len(gateway.on(Tier.HOST)) == host.blocks)


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_read_that_outlives_its_lease_gets_the_block_or_nothing(folder: Path) -> None:
    """Mooncake 850: a read outlived its lease, and got the bytes of a block that came after."""
    async with (
        served(folder, lease_ttl_s=0.1, fetch_timeout_s=0.05) as path,
        FakeWorker(path) as reader,
        FakeWorker(path, name="mixed-1") as writer,
    ):
        keys = await writer.put_prompt(blocks=4)
        located = await reader.locate(keys)
        assert reader.copy(located) == contents(keys)
        await asyncio.sleep(0.1)
        async with FakeGateway(path) as gateway:
            assert (await gateway.ask(StoreOp.CLEAR)).blocks == 4
        seed = 100
        while (copied := reader.copy(located)) != [None] * 4:
            assert all(
                got in (None, right) for got, right in zip(copied, contents(keys), strict=True)
            )
            await writer.put_prompt(blocks=16, seed=seed)
            seed += 1


async def test_a_released_lease_is_over_and_leases_end_with_their_worker(folder: Path) -> None:
    """LMCache 1034: pins leaked until nothing could be evicted any more."""

    async def leases(gateway: FakeGateway) -> int:
        return (await gateway.ask(StoreOp.STATS)).stats[0].leases

    async with (
        served(folder, lease_ttl_s=600.0) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt()
        held = [await worker.locate(keys) for _ in range(10)]
        assert await leases(gateway) == 10
        for one in held:
            worker.release(one)
            worker.release(one)
        await until(lambda: _is(leases(gateway), 0))
        other = FakeWorker(path, name="mixed-1")
        await other.open()
        await other.locate(keys)
        assert await leases(gateway) == 1
        other.close()
        await until(lambda: _is(leases(gateway), 0))


async def _is(value, wanted) -> bool:
    return await value == wanted


async def test_a_stopped_store_costs_a_deadline_and_is_of_use_again(folder: Path) -> None:
    async with real_store(folder, cluster={"lost_after_s": 0.5}) as store:
        quick = {"heartbeat_s": 0.05, "lost_after_s": 0.5}
        worker = FakeWorker(store.path, cluster=quick)
        await worker.open()
        keys = await worker.put_prompt()
        async with stopped(store):
            with pytest.raises(PeerError):
                await worker.locate(keys)
            assert worker.ending is not None
        worker.close()
        async with FakeWorker(store.path, cluster=quick) as again:
            assert await again.fetch(keys) == contents(keys)


async def test_a_worker_that_asks_and_does_not_read_is_lost_and_alone(folder: Path) -> None:
    """One client that does not read must not end, or fill, the process that all others need."""
    async with real_store(folder, cluster={"lost_after_s": 0.5}) as store:
        caller = FakeWorker(store.path)
        _, [memory], connection = await answer_to(
            store.path, encode(Kind.STORE_HELLO, caller.hello), [caller.region.fd]
        )
        os.close(memory)
        asks = 1000 * encode(Kind.LOCATE, Locate(tenant=b"", keys=(), wait_s=0.0), 7)
        sent = 0
        with pytest.raises(OSError, match=r"Broken pipe|Connection reset"):
            while True:
                await asyncio.get_running_loop().sock_sendall(connection, asks)
                sent += 1000
                assert sent < 500_000, "the store reads on"
        connection.close()
        caller.region.close()
        async with FakeWorker(store.path) as another:
            keys = await another.put_prompt()
            assert await another.fetch(keys) == contents(keys)
        assert not any("Traceback" in line for line in store.log)


async def test_a_stopped_worker_is_let_go_and_its_memory_too(folder: Path) -> None:
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom store_callers import FakeWorker\n"
        "async def run():\n"
        "    async with FakeWorker(Path(sys.argv[1])) as worker:\n"
        "        keys = await worker.put_prompt()\n"
        "        await worker.locate(keys)\n"
        "        print('there', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(run())\n"
    )
    async with (
        real_store(folder, cluster={"lost_after_s": 0.5}, lease_ttl_s=600.0) as store,
        FakeGateway(store.path) as gateway,
    ):
        async with FakeWorker(store.path):
            pass  # the store has made its memory
        await until(lambda: store.mapped() == 1)
        before = store.descriptors()
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, store.path),
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent,
        )
        try:
            assert child.stdout is not None
            assert await asyncio.wait_for(child.stdout.readline(), DEADLINE_S) == b"there\n"
            child.send_signal(signal.SIGSTOP)

            async def let_go() -> bool:
                [host] = (await gateway.ask(StoreOp.STATS)).stats
                return host.leases == 0

            await until(let_go)
            await until(lambda: store.mapped() == 1)
            await until(lambda: store.descriptors() == before)
        finally:
            child.kill()
            await child.wait()


async def test_a_killed_store_is_an_error_at_once_and_its_successor_is_empty(folder: Path) -> None:
    """Mooncake 2039: stale metadata after a restart. LMCache 1690: it exists, but it is gone."""
    async with real_store(folder) as store:
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            keys = await worker.put_prompt()
            store.signal(signal.SIGSTOP)
            asking = asyncio.create_task(worker.locate(keys))
            await asyncio.sleep(0)
            await store.kill()
            with pytest.raises(PeerError):
                await asyncio.wait_for(asking, DEADLINE_S)
            with pytest.raises(PeerError):
                await gateway.ask(StoreOp.STATS)
        await store.start()
        async with FakeWorker(store.path) as worker, FakeGateway(store.path) as gateway:
            assert (await worker.locate(keys)).blocks == ()
            await gateway.until(lambda: True)
            assert gateway.held == set()
            assert await worker.fetch(await worker.put_prompt(seed=3))


async def test_killed_in_the_middle_of_puts_nothing_wrong_is_ever_read(folder: Path) -> None:
    async with real_store(folder) as store:
        for seed in range(2):
            async with FakeWorker(store.path) as worker:
                keys = keys_of(prompt(16, seed))
                worker.send(*map(worker.sealed, keys, [None, *keys[:-1]]))
                located = await worker.locate(keys)
                await store.kill()
                copied = worker.copy(located)
                assert copied == contents(keys)[: len(copied)]
            await store.start()


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_flood_of_puts_is_dropped_and_counted_and_the_store_answers(folder: Path) -> None:
    """LMCache 1285: a slow writer starved everybody."""
    async with (
        served(folder) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        block = worker.sealed(keys_of(prompt(1))[0], None)
        names = BlockKeys(identity=IDENTITY, numerics="flood", block_tokens=1)
        keys = [names.key(None, [number]) for number in range(20_000)]
        flood = [PutBlock(key=key, parent=None, pages=block.pages) for key in keys]
        worker.stream.send(Kind.PUT, Put(tenant=b"", blocks=tuple(flood)))
        await worker.locate(keys[:1])
        [host] = (await gateway.ask(StoreOp.STATS)).stats
        assert dict(host.dropped)["queue_full"] > 0
        await worker.put_prompt(seed=4)


async def test_memory_comes_as_blocks_come(folder: Path) -> None:
    """The store's memory is not taken at its start: a limit is no reservation."""

    def shared_bytes(pid: int) -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("RssShmem")]
        return int(line.split()[1]) * 1024

    async with real_store(folder, memory_bytes="1GiB") as store, FakeWorker(store.path) as worker:
        assert shared_bytes(store.pid) < 64 * 2**20
        await worker.put_prompt()
        assert shared_bytes(store.pid) < 64 * 2**20
