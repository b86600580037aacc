"""What operators ask, while other things happen: nothing is left half said, and nobody waits."""

import asyncio
import threading
from pathlib import Path

import pytest
from store_callers import BLOCK_BYTES, FakeGateway, FakeWorker, until
from store_kit import RemoteDict, gated, in_use, served

from antiphon.errors import PeerError
from antiphon.live.store.host_memory import HostMemory
from antiphon.store.disk import DiskTier
from antiphon.store.disk.recovery import Recovery
from antiphon.types import StoreOp, Tier

pytestmark = pytest.mark.timeout(120)


async def let_in(worker: FakeWorker) -> bool:
    """Whether it is in; it is not while workers of another model are here."""
    try:
        await worker.open()
    except PeerError as error:
        assert error.args[0].startswith("model"), error
        return False
    return True


async def test_workers_of_another_model_end_what_an_operator_waits_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store ended with it: a verify went on with threads that were no longer there."""
    gate = gated(monkeypatch, HostMemory, "intact")
    async with served(folder) as path, FakeGateway(path) as gateway:
        async with FakeWorker(path) as worker:
            await worker.put_prompt(blocks=20)
            await worker.put_prompt(blocks=50, seed=1)
            verifying = asyncio.create_task(gateway.ask(StoreOp.VERIFY))
            await gate.reached()
        other = FakeWorker(path, identity=bytes(32))
        await until(lambda: let_in(other))
        assert "another model" in (await verifying).problem
        gate.open()
        keys = await other.put_prompt(blocks=2)
        assert (await gateway.ask(StoreOp.VERIFY, keys)).problem == ""
        other.close()


async def test_why_not_all_was_pinned_is_said(folder: Path) -> None:
    async with in_use(folder, memory_bytes=2**20) as (worker, gateway):
        most = 2**20 // BLOCK_BYTES // 2
        prompts = [await worker.put_prompt(60, seed) for seed in range(3)]
        keys = [key for one in prompts for key in one]
        short = await gateway.ask(StoreOp.PIN, (*keys[:2], bytes(32)))
        assert (short.blocks, short.note[:34]) == (2, "the store has no more of the promp")
        full = await gateway.ask(StoreOp.PIN, keys)
        assert full.blocks == most
        assert "at most half of the store's memory can be pinned" in full.note
        assert "unpin another prompt" in full.note


async def test_a_store_that_is_stopped_does_not_recover_its_disk_to_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping, and beginning anew for another model, took as long as the recovery."""
    disk = {"disk_bytes": "1MiB", "dir": str(folder / "kv")}
    async with in_use(folder, **disk) as (worker, gateway):
        for seed in range(3):
            keys = await worker.put_prompt(30, seed)
            await gateway.until(lambda keys=keys: gateway.on(Tier.DISK) >= set(keys))
    segments = len(list((folder / "kv").glob("*.kv")))

    segment, close, seen = Recovery._segment, DiskTier.close, []

    def noted(recovery: Recovery, number: int) -> None:
        seen.append(number)
        segment(recovery, number)

    def closing(tier: DiskTier) -> None:
        threading.Timer(0.2, gate.open).start()
        close(tier)

    monkeypatch.setattr(Recovery, "_segment", noted)
    gate = gated(monkeypatch, Recovery, "_segment")
    monkeypatch.setattr(DiskTier, "close", closing)
    async with served(folder, **disk) as path, FakeWorker(path):
        await gate.reached()
    assert 1 <= len(seen) < segments


# ── the remote tier ──────────────────────────────────────────────────────────────────────────────


async def test_the_remote_is_verified_too_and_what_was_left_out_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was skipped, and all was said to be well."""
    remote = RemoteDict()
    async with in_use(folder, values=remote) as (worker, gateway):
        keys = await worker.put_prompt(20)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        good = await gateway.ask(StoreOp.VERIFY)
        assert (good.blocks, good.note) == (0, "")
        monkeypatch.setattr("antiphon.live.store.operator.MOST_VERIFIED_REMOTE", 5)
        some = await gateway.ask(StoreOp.VERIFY)
        assert some.note.startswith(
            "of 20 blocks that the remote tier is known to have 5 were read"
        )
        [name] = [name for name in remote.kept if name.endswith(keys[3])]
        remote.kept[name] = remote.kept[name][:-1] + bytes([remote.kept[name][-1] ^ 1])
        bad = await gateway.ask(StoreOp.VERIFY, keys[2:5])
        assert (bad.blocks, bad.note, name in remote.kept) == (1, "", False)
        del remote.kept[next(name for name in remote.kept if name.endswith(keys[4]))]
        gone = await gateway.ask(StoreOp.VERIFY, keys[2:5])
        assert (gone.blocks, gone.note.split(",")[0]) == (
            1,
            "1 were missing on the remote tier (store.remote)",
        )
        await until(lambda: any(name.endswith(keys[4]) for name in remote.kept))  # again
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys) - {keys[3]})
        remote.silent = True
        silent = await gateway.ask(StoreOp.VERIFY)
        assert (silent.blocks, silent.problem) == (0, "")
        assert "could not be asked" in silent.note


async def test_a_verify_counts_what_the_remote_has_lost(folder: Path) -> None:
    """It said that all blocks are what they were, of a Redis that had started again, empty."""
    remote = RemoteDict()
    async with in_use(folder, values=remote) as (worker, gateway):
        keys = await worker.put_prompt(5)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        assert (await gateway.ask(StoreOp.VERIFY)).blocks == 0
        remote.kept.clear()
        answer = await gateway.ask(StoreOp.VERIFY)
        assert answer.blocks == 5
        assert "5 were missing on the remote tier" in answer.note
        await until(lambda: len(remote.kept) == 5)  # they are in memory, and written again
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        answer = await gateway.ask(StoreOp.VERIFY)
        assert (answer.blocks, answer.note) == (0, "")


async def test_whoever_finds_a_remote_empty_has_blocks_written_again(folder: Path) -> None:
    remote = RemoteDict()
    async with served(folder, values=remote) as path, FakeWorker(path) as worker:
        keys = await worker.put_prompt(3)
        await until(lambda: len(remote.kept) == 3)
    async with in_use(folder, values=remote) as (worker, gateway):
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        remote.kept.clear()
        assert (await gateway.ask(StoreOp.PREFETCH, keys)).blocks == 0
        await gateway.until(lambda: not gateway.on(Tier.REMOTE))
        await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        assert len(remote.kept) == 3
