"""What operators clear is gone from every tier, whatever else happens meanwhile."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from store_callers import FakeGateway, FakeWorker, keys_of, prompt
from store_kit import Gate, RemoteDict, gated, in_use, on_disk, served

from antiphon.live.slices import slices
from antiphon.live.store.host_memory import HostMemory
from antiphon.store.disk import DiskTier
from antiphon.store.record import RecordHeader, decode_header
from antiphon.store.remote import RemoteTier
from antiphon.types import StoreOp, Tier

pytestmark = pytest.mark.timeout(120)


async def test_what_was_cleared_is_in_the_remote_no_more_and_of_earlier_lives_neither(
    folder: Path,
) -> None:
    remote = RemoteDict()
    async with in_use(folder, values=remote) as (worker, gateway):
        earlier = await worker.put_prompt(5)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(earlier))
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeWorker(path, tenant=b"other", name="mixed-1") as other,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(3, seed=1)
        kept = await other.put_prompt(3)
        known = {*earlier, *keys, *kept}
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == known)
        answer = await gateway.ask(StoreOp.CLEAR, tenant=worker.tenant)
        assert (answer.blocks, answer.problem) == (8, "")
        assert len(remote.kept) == 3
        assert (await worker.locate(keys)).blocks == (await worker.locate(earlier)).blocks == ()
        assert len((await other.locate(kept)).blocks) == 3
        assert (await gateway.ask(StoreOp.CLEAR, kept[1:])).blocks == 2
        assert len((await other.locate(kept)).blocks) == 1
        assert (await gateway.ask(StoreOp.CLEAR)).blocks == 1
        assert remote.kept == {}


async def test_what_could_not_be_cleared_is_said(folder: Path) -> None:
    remote = RemoteDict()
    async with in_use(folder, values=remote) as (worker, gateway):
        keys = await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        remote.silent = True
        answer = await gateway.ask(StoreOp.CLEAR)
        assert answer.blocks == 3
        assert "remote tier could not be asked" in answer.problem


async def test_what_is_brought_up_from_the_remote_is_its_tenants_as_workers_name_it(
    folder: Path,
) -> None:
    """It was nobody's: no quota, and a clear of its tenant did not find it."""
    remote = RemoteDict()
    async with in_use(folder, values=remote) as (worker, gateway):
        keys = await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
    headers = [decode_header(value) for value in remote.kept.values()]
    assert all(isinstance(one, RecordHeader) for one in headers)
    assert {one.block.tenant for one in headers if isinstance(one, RecordHeader)} == {worker.tenant}
    async with in_use(folder, values=remote) as (worker, gateway):
        assert (await gateway.ask(StoreOp.PREFETCH, keys, tenant=worker.tenant)).blocks == 3
        remote.silent = True
        assert (await gateway.ask(StoreOp.CLEAR, tenant=worker.tenant)).blocks == 3
        assert gateway.on(Tier.HOST) == set()


# ── while others are at work ─────────────────────────────────────────────────────────────────────


async def test_what_is_looked_for_while_it_is_cleared_does_not_come_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory was cleared, a reader brought the blocks up again, then the disk was cleared."""
    gate = gated(monkeypatch, DiskTier, "clear")
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        clearing = asyncio.create_task(gateway.ask(StoreOp.CLEAR))
        await gate.reached()
        worker.release(await worker.locate(keys))
        gate.open()
        assert (await clearing).blocks == 3
        assert (await worker.locate(keys)).blocks == ()
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((),) * 3


async def test_what_waits_to_be_put_is_cleared_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gated(monkeypatch, HostMemory, "copy_in")
    async with (
        served(folder) as path,
        FakeWorker(path) as worker,
        FakeWorker(path, tenant=b"other", name="mixed-1") as other,
        FakeGateway(path) as gateway,
    ):
        keys = keys_of(prompt(40))
        worker.send(*map(worker.sealed, keys, [None, *keys[:-1]]))
        await gate.reached()
        await gateway.ask(StoreOp.CLEAR, tenant=b"nobody")
        await gateway.ask(StoreOp.CLEAR, tenant=worker.tenant)
        gate.open()
        await other.put_prompt(2)
        await worker.put_prompt(2, seed=1)
        assert gateway.on(Tier.HOST).isdisjoint(keys)
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((),) * 40


async def test_what_is_cleared_while_a_recovered_disk_is_announced_is_not_announced_after(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.live.store.disk_blocks.slices", partial(slices, size=1))
    async with in_use(folder, **on_disk(folder)) as (worker, gateway):
        keys = await worker.put_prompt(60)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
    async with (
        served(folder, **on_disk(folder)) as path,
        FakeGateway(path) as gateway,
        FakeWorker(path),
    ):
        await gateway.until(lambda: bool(gateway.on(Tier.DISK)))
        await gateway.ask(StoreOp.CLEAR)
        for _ in range(100):
            await asyncio.sleep(0)
        tiers = (await gateway.ask(StoreOp.LOOKUP, keys)).tiers
        assert tiers == ((),) * 60
        assert gateway.held == set()


async def test_what_is_cleared_while_the_remote_is_looked_through_is_not_said_to_be_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, some, remote = Gate(), RemoteTier.some, RemoteDict()
    async with in_use(folder, values=remote) as (worker, gateway):
        keys = await worker.put_prompt(20)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))

    def said_late(tier: RemoteTier, place: int) -> Any:
        said = some(tier, place)
        gate.pass_through()
        return said

    monkeypatch.setattr(RemoteTier, "some", said_late)
    async with (
        served(folder, values=remote) as path,
        FakeGateway(path) as gateway,
        FakeWorker(path),
    ):
        await gate.reached()
        clearing = asyncio.create_task(gateway.ask(StoreOp.CLEAR))
        gate.open()
        assert (await clearing).blocks == 20
        await gateway.until(lambda: not gateway.held)
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((),) * 20


# ── a remote that has forgotten ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("whose", ["all", "tenant", "keys"])
async def test_a_clear_leaves_no_belief_in_what_the_remote_has_lost(
    folder: Path, whose: str
) -> None:
    remote = RemoteDict()
    async with in_use(folder, values=remote) as (worker, gateway):
        keys = await worker.put_prompt(5)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        remote.kept.clear()
        answer = await gateway.ask(
            StoreOp.CLEAR,
            keys if whose == "keys" else (),
            **{"tenant": worker.tenant} if whose == "tenant" else {},
        )
        assert answer.problem == ""
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((),) * 5
