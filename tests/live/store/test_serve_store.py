"""The store within this process: broken laws, slow disks, lost messages; and `antiphon store`."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from store_callers import (
    DEADLINE_S,
    FakeGateway,
    FakeWorker,
    contents,
    keys_of,
    prompt,
    until,
)
from store_kit import served

from antiphon.core.store_pool import PooledHostTier
from antiphon.errors import BugError
from antiphon.live.socket_folder import STORE_SOCKET
from antiphon.live.store import kv_store, tiered_blocks
from antiphon.store.disk import DiskTier
from antiphon.types import KvReplay, StoreOp, Tier
from antiphon.wire import Kind

pytestmark = pytest.mark.timeout(120)


class LawBreaker(PooledHostTier):
    """Negative control: finds that a law was broken at the first put."""

    def begin_put(self, *_: Any, **__: Any) -> Any:
        raise BugError("a slot is nobody's")


async def test_a_broken_law_ends_the_process(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(tiered_blocks, "PooledHostTier", LawBreaker)
    with pytest.raises(BugError, match="a slot is nobody's"):
        async with served(folder) as path:
            worker = FakeWorker(path)
            await worker.open()
            worker.send(worker.sealed(keys_of(prompt(1))[0], None))
            await until(lambda: worker.ending is not None)
            worker.close()
    assert not (folder / STORE_SOCKET).exists()


class SlowDisk(DiskTier):
    """Reads wait for the gate."""

    gate = threading.Event()

    def read(self, key, into):
        assert self.gate.wait(DEADLINE_S)
        return super().read(key, into)


async def test_a_disk_that_hangs_costs_the_wait_that_was_asked_for_and_no_more(
    folder: Path, monkeypatch
) -> None:
    """LMCache 1285, Mooncake 1088: whoever looked something up waited for the slowest tier."""
    monkeypatch.setattr(kv_store, "DiskTier", SlowDisk)
    SlowDisk.gate.clear()
    where = {"disk_bytes": "64MiB", "dir": str(folder / "disk")}
    async with (
        served(folder, **where) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(blocks=12)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        assert (await gateway.ask(StoreOp.MOVE, keys[4:], tier=Tier.DISK)).blocks == 8
        located = await worker.locate(keys, wait_s=0.05)
        assert (located.from_disk, len(located.blocks)) == (0, 4)
        asking = [asyncio.create_task(worker.locate(keys)) for _ in range(8)]
        more = await worker.put_prompt(seed=1)
        assert await worker.fetch(more) == contents(more)
        SlowDisk.gate.set()
        for one in asking:
            assert worker.copy(await one) == contents(keys)


async def test_changes_that_a_gateway_missed_are_said_again(folder: Path) -> None:
    async with served(folder) as path, FakeWorker(path) as worker, FakeGateway(path) as gateway:
        first = await worker.put_prompt(blocks=3)
        await gateway.until(lambda: gateway.on(Tier.HOST) == set(first))
        begun = gateway.next - 3
        gateway.held.clear()
        gateway.next = begun
        gateway.stream.send(Kind.KV_REPLAY, KvReplay(begun))
        await gateway.until(lambda: gateway.on(Tier.HOST) == set(first))
        assert gateway.dumps == 1
        gateway.stream.send(Kind.KV_REPLAY, KvReplay(10**9))
        await gateway.until(lambda: gateway.dumps == 2)
        assert gateway.on(Tier.HOST) == set(first)
        assert (await gateway.ask(StoreOp.CLEAR)).blocks == 3
        await gateway.until(lambda: not gateway.held)


async def test_more_leases_than_may_be_are_refused_and_nobody_is_harmed(folder: Path) -> None:
    """LMCache 1034: leaked leases kept everything from being evicted."""
    async with served(folder, lease_ttl_s=600.0) as path, FakeWorker(path) as worker:
        keys = await worker.put_prompt()
        held = [await worker.locate(keys) for _ in range(4200)]
        assert held[0].blocks
        assert held[-1].blocks == ()
        for one in held:
            worker.release(one)
        assert await worker.fetch(keys) == contents(keys)


# ── antiphon store ───────────────────────────────────────────────────────────────────────────────


async def test_antiphon_store_serves_until_a_signal_and_is_alone_at_its_socket(
    folder: Path,
) -> None:
    command = [sys.executable, "-m", "antiphon", "store", "--socket-dir", str(folder)]
    first = await asyncio.create_subprocess_exec(
        *command, "--store-memory", "1MiB", stdout=subprocess.PIPE
    )
    try:
        assert first.stdout is not None
        line = await asyncio.wait_for(first.stdout.readline(), DEADLINE_S)
        assert str(folder / STORE_SOCKET) in line.decode()
        async with FakeWorker(folder / STORE_SOCKET) as worker:
            keys = await worker.put_prompt()
            second = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
            _, errors = await asyncio.wait_for(second.communicate(), DEADLINE_S)
            assert second.returncode == 2
            assert b"another process listens there" in errors
            assert await worker.fetch(keys) == contents(keys)
        first.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(first.wait(), DEADLINE_S) == 0
        assert not (folder / STORE_SOCKET).exists()
    finally:
        if first.returncode is None:
            first.kill()
            await first.wait()
