"""What operators ask, while other things happen: nothing is left half said, and nobody waits."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from store_kit import FakeGateway, FakeWorker, RemoteDict, keys_of, prompt, served, until

from antiphon.core.tiers import Slot
from antiphon.errors import PeerError
from antiphon.live.store.host_memory import HostMemory
from antiphon.store.disk import DiskTier
from antiphon.types import OfferedPage, StoreOp, Tier

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


class Gate:
    """Something on a thread stands still at it while it is closed."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._open.wait(60)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        self._open.set()


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
    gate, intact = Gate(), HostMemory.intact

    def slow(memory: HostMemory, slots: Sequence[Slot]) -> list[bool]:
        gate.pass_through()
        return intact(memory, slots)

    monkeypatch.setattr(HostMemory, "intact", slow)
    async with served(folder) as path, FakeGateway(path) as gateway:
        async with FakeWorker(path) as worker:
            await worker.put_prompt(blocks=20)
            await worker.put_prompt(blocks=50, seed=1)
            asked = asyncio.create_task(gateway.ask(StoreOp.VERIFY))
            await gate.reached()
        other = FakeWorker(path, identity=bytes(32))
        await until(lambda: let_in(other))
        assert "another model" in (await asked).problem
        gate.open()
        keys = await other.put_prompt(blocks=2)
        assert (await gateway.ask(StoreOp.VERIFY, keys)).problem == ""
        other.close()


# ── clear ────────────────────────────────────────────────────────────────────────────────────────


async def test_what_was_cleared_is_in_the_remote_no_more_and_of_earlier_lives_neither(
    folder: Path,
) -> None:
    remote = RemoteDict()
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
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
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == {*keys, *kept})
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
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        remote.silent = True
        answer = await gateway.ask(StoreOp.CLEAR)
        assert answer.blocks == 3
        assert "remote tier could not be asked" in answer.problem


async def test_what_is_looked_for_while_it_is_cleared_does_not_come_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory was cleared, a reader brought the blocks up again, then the disk was cleared."""
    gate, clear = Gate(), DiskTier.clear

    def slow(tier: DiskTier, tenant: bytes | None = None) -> tuple[bytes, ...]:
        gate.pass_through()
        return clear(tier, tenant)

    monkeypatch.setattr(DiskTier, "clear", slow)
    async with (
        served(folder, disk_bytes="8MiB", dir=str(folder / "kv")) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        asked = asyncio.create_task(gateway.ask(StoreOp.CLEAR))
        await gate.reached()
        worker.release(await worker.locate(keys))
        gate.open()
        assert (await asked).blocks == 3
        assert (await worker.locate(keys)).blocks == ()
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((),) * 3


async def test_what_waits_to_be_put_is_cleared_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, copy_in = Gate(), HostMemory.copy_in

    def slow(memory: HostMemory, *what: Any) -> tuple[OfferedPage, ...] | None:
        gate.pass_through()
        return copy_in(memory, *what)

    monkeypatch.setattr(HostMemory, "copy_in", slow)
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
