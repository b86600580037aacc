"""A pool of store processes of which one is killed and another added while it is read and written:
no error, and never other bytes than a block's own."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from pool_kit import PoolOfProcesses, eventually_all, processes, right_or_missing
from store_callers import FakeWorker, until

from antiphon.types import BlockKey

PROMPTS = 12


async def reads_and_puts(worker: FakeWorker, number: int, stop: asyncio.Event) -> int:
    """What a worker does over and over: look for a prompt that all share, and put what it lacks;
    how many blocks it got."""
    came = turn = 0
    while not stop.is_set():
        seed = (turn + number) % PROMPTS
        turn += 1
        keys = await worker.put_prompt(blocks=6, seed=seed)
        came += right_or_missing(keys, await worker.fetch(keys, wait_s=5.0))
    return came


async def test_a_node_killed_and_another_added_while_it_is_used(folder: Path) -> None:
    async with processes(folder, "a", "b", "c") as pool, AsyncExitStack() as until_end:
        workers = [await _worker(until_end, pool, name) for name in "ab"]
        stop = asyncio.Event()
        running = [
            asyncio.create_task(reads_and_puts(worker, number, stop))
            for number, worker in enumerate(workers)
        ]
        await _new_prompt_is_everywhere(workers, seed=100)
        await pool.stores["c"].kill()
        await _new_prompt_is_everywhere(workers, seed=200)
        await pool.add("d")
        workers.append(await _worker(until_end, pool, "d"))
        await _new_prompt_is_everywhere(workers, seed=300)
        await pool.stores["c"].start()
        workers.append(await _worker(until_end, pool, "c"))
        await _new_prompt_is_everywhere(workers, seed=400)
        stop.set()
        assert all(await asyncio.gather(*running))
        assert not any("Traceback" in line for one in pool.stores.values() for line in one.log)


async def _worker(until_end: AsyncExitStack, pool: PoolOfProcesses, name: str) -> FakeWorker:
    return await until_end.enter_async_context(FakeWorker(pool.stores[name].path))


async def _new_prompt_is_everywhere(workers: list[FakeWorker], seed: int) -> None:
    """What each puts, each other one can fetch."""
    for number, worker in enumerate(workers):
        keys = await worker.put_prompt(blocks=5, seed=seed + number)
        for other in workers:
            await eventually_all(other, keys)


async def test_a_stopped_store_costs_its_blocks_and_time_but_no_answer(folder: Path) -> None:
    """It does not answer, nor does it end: reads give up on it, and puts never wait for it."""
    async with processes(folder, "a", "b") as pool, AsyncExitStack() as until_end:
        here, there = [await _worker(until_end, pool, name) for name in "ab"]
        keys = await there.put_prompt(blocks=8)
        await eventually_all(here, keys)
        far: list[BlockKey] = await there.put_prompt(blocks=8, seed=1)
        pool.stores["b"].signal(19)  # SIGSTOP
        try:
            got = await here.fetch(far, wait_s=1.0)
            right_or_missing(far, got)
            mine = await here.put_prompt(blocks=8, seed=2)
            assert right_or_missing(mine, await here.fetch(mine, wait_s=1.0)) == len(mine)
        finally:
            pool.stores["b"].signal(18)  # SIGCONT
        await eventually_all(here, far)


async def test_the_log_says_what_to_do_when_a_store_is_called_otherwise(folder: Path) -> None:
    async with processes(folder, "a") as pool, AsyncExitStack() as until_end:
        pool.ports["z"] = pool.ports["a"]  # who answers there is a, not z
        del pool.stores["a"].log[:]
        first = pool.stores.pop("a")
        pool.stores["z"] = first
        other = await pool.add("b")
        await _worker(until_end, pool, "b")
        await until(lambda: any("store_pool.peers" in line for line in other.log))
