"""What operators move to another tier is there before it leaves memory, or it stays."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from store_callers import contents, keys_of, prompt
from store_kit import gated, in_use, on_disk

from antiphon.store.disk import DiskTier
from antiphon.types import StoreOp, Tier

pytestmark = pytest.mark.timeout(120)


def emptied(disk: Path) -> None:
    """As `rm -rf DIR/*` does."""
    for file in disk.iterdir():
        file.unlink()


async def test_a_move_waits_for_its_own_blocks_and_many_of_them_silence_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited until nothing at all was to be written: under load never."""
    append, more, stop = DiskTier.append, 0, asyncio.Event()

    def slow(tier: DiskTier, *block: Any) -> Any:
        time.sleep(0.01)
        return append(tier, *block)

    monkeypatch.setattr(DiskTier, "append", slow)
    async with in_use(folder, **on_disk(folder), memory_bytes="16MiB") as (worker, gateway):

        async def traffic() -> None:
            nonlocal more
            while not stop.is_set():
                for _ in range(10):
                    more += 1
                    worker.send(worker.sealed(keys_of(prompt(1, 1000 + more))[0], None))
                await asyncio.sleep(0.05)

        keys = await worker.put_prompt(20)
        putting = asyncio.create_task(traffic())
        moves = [
            asyncio.create_task(gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)) for _ in range(16)
        ]
        assert (await gateway.ask(StoreOp.STATS)).problem == ""
        assert [answer.blocks for answer in await asyncio.gather(*moves)] == [20] * 16
        assert not putting.done()
        stop.set()
        await putting


async def test_more_moves_than_may_wait_are_refused_and_so_is_one_that_can_not_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gated(monkeypatch, DiskTier, "append")
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(3)
        moves = [
            asyncio.create_task(gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)) for _ in range(16)
        ]
        await gate.reached()
        late = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
        assert "16 questions" in late.problem
        assert (await gateway.ask(StoreOp.STATS)).problem == ""
        for one in moves:
            assert not one.done()
        gate.open()
        assert [answer.blocks for answer in await asyncio.gather(*moves)] == [3] * 16
        nobody = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK, wait_s=-1.0)
        assert "nobody can wait" in nobody.problem


async def test_an_operators_patience_is_the_stores(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gated(monkeypatch, DiskTier, "append")
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(3)
        answer = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK, wait_s=0.05)
        assert "not done in time" in answer.problem
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.HOST,),) * 3
        gate.open()


async def test_what_is_pinned_is_not_moved(folder: Path) -> None:
    """The pin went with the move, and nobody heard of it."""
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(5)
        assert (await gateway.ask(StoreOp.PIN, keys[:2])).blocks == 2
        answer = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
        assert (answer.blocks, answer.note.split(":")[0]) == (3, "2 are pinned and stay in memory")
        assert (await gateway.ask(StoreOp.STATS)).stats[0].pinned_blocks == 2
        assert (await gateway.ask(StoreOp.UNPIN, keys)).blocks == 2
        answer = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
        assert (answer.blocks, answer.note) == (5, "")


# ── files that were deleted ──────────────────────────────────────────────────────────────────────


async def test_a_move_to_an_emptied_folder_loses_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It said that all had moved, and dropped them from memory."""
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(5)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        emptied(folder / "kv")
        assert (await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)).blocks == 5
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.DISK,),) * 5
        assert await worker.fetch(keys) == contents(keys)
    assert [line for line in caplog.messages if "deleted while the store runs" in line][1:] == []


async def test_a_block_that_can_not_be_read_back_stays_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = DiskTier.append

    def deleted(tier: DiskTier, *block: Any) -> Any:
        outcome = append(tier, *block)
        emptied(folder / "kv")
        return outcome

    monkeypatch.setattr(DiskTier, "append", deleted)
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(5)
        assert (await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)).blocks == 0
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.HOST,),) * 5


@pytest.mark.parametrize("op", [StoreOp.STATS, StoreOp.LOOKUP, StoreOp.VERIFY])
async def test_whoever_looks_notices_deleted_files(
    folder: Path, op: StoreOp, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(5)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        emptied(folder / "kv")
        answer = await gateway.ask(op, keys if op is StoreOp.LOOKUP else ())
        await gateway.until(lambda: not gateway.on(Tier.DISK))
        assert answer.blocks == {StoreOp.STATS: 0, StoreOp.LOOKUP: 5, StoreOp.VERIFY: 5}[op]
        [_, stats] = (await gateway.ask(StoreOp.STATS)).stats
        assert (stats.blocks, dict(stats.dropped)["lost"]) == (0, 5)
    [_] = [line for line in caplog.messages if "deleted while the store runs" in line]


async def test_a_fetch_that_meets_a_deleted_file_forgets_all_of_it(folder: Path) -> None:
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(5)
        assert (await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)).blocks == 5
        emptied(folder / "kv")
        assert await worker.fetch(keys[:1]) == []
        await gateway.until(lambda: not gateway.on(Tier.DISK))
