"""What operators ask, while other things happen: nothing is left half said, and nobody waits."""

import asyncio
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from store_kit import (
    BLOCK_BYTES,
    FakeGateway,
    FakeWorker,
    RemoteDict,
    content_of,
    keys_of,
    prompt,
    served,
    until,
)

from antiphon.core.tiers import Slot
from antiphon.errors import PeerError
from antiphon.live.slices import slices
from antiphon.live.store.host_memory import HostMemory
from antiphon.store.disk import DiskTier
from antiphon.store.disk.recovery import Recovery
from antiphon.store.record import RecordHeader, decode_header
from antiphon.store.remote import RemoteTier
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


# ── verify, pin ──────────────────────────────────────────────────────────────────────────────────


async def test_the_remote_is_verified_too_and_what_was_left_out_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was skipped, and all was said to be well."""
    remote = RemoteDict()
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
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


async def test_why_not_all_was_pinned_is_said(folder: Path) -> None:
    async with (
        served(folder, memory_bytes=2**20) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        most = 2**20 // BLOCK_BYTES // 2
        prompts = [await worker.put_prompt(60, seed) for seed in range(3)]
        keys = [key for one in prompts for key in one]
        short = await gateway.ask(StoreOp.PIN, (*keys[:2], bytes(32)))
        assert (short.blocks, short.note[:34]) == (2, "the store has no more of the promp")
        full = await gateway.ask(StoreOp.PIN, keys)
        assert full.blocks == most
        assert "at most half of the store's memory can be pinned" in full.note
        assert "unpin another prompt" in full.note


# ── others' work ─────────────────────────────────────────────────────────────────────────────────


async def test_a_move_waits_for_its_own_blocks_and_many_of_them_silence_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited until nothing at all was to be written: under load never."""
    append, more, stop = DiskTier.append, 0, asyncio.Event()

    def slow(tier: DiskTier, *block: Any) -> Any:
        time.sleep(0.01)
        return append(tier, *block)

    monkeypatch.setattr(DiskTier, "append", slow)
    async with (
        served(folder, memory_bytes="16MiB", disk_bytes="8MiB", dir=str(folder / "kv")) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):

        async def traffic() -> None:
            nonlocal more
            while not stop.is_set():
                for _ in range(10):
                    more += 1
                    worker.send(worker.sealed(keys_of(prompt(1, 1000 + more))[0], None))
                await asyncio.sleep(0.05)

        keys = await worker.put_prompt(20)
        putting = asyncio.create_task(traffic())
        asked = [
            asyncio.create_task(gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)) for _ in range(16)
        ]
        assert (await gateway.ask(StoreOp.STATS)).problem == ""
        assert [answer.blocks for answer in await asyncio.gather(*asked)] == [20] * 16
        assert not putting.done()
        stop.set()
        await putting


async def test_what_takes_too_long_is_ended_and_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, append = Gate(), DiskTier.append

    def slow(tier: DiskTier, *block: Any) -> Any:
        gate.pass_through()
        return append(tier, *block)

    monkeypatch.setattr(DiskTier, "append", slow)
    async with (
        served(folder, disk_bytes="8MiB", dir=str(folder / "kv")) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(3)
        asked = [
            asyncio.create_task(gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)) for _ in range(16)
        ]
        await gate.reached()
        late = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
        assert "16 questions" in late.problem
        assert (await gateway.ask(StoreOp.STATS)).problem == ""
        for one in asked:
            assert not one.done()
        gate.open()
        assert [answer.blocks for answer in await asyncio.gather(*asked)] == [3] * 16
        nobody = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK, wait_s=-1.0)
        assert "nobody can wait" in nobody.problem


async def test_an_operators_patience_is_the_stores(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, append = Gate(), DiskTier.append

    def slow(tier: DiskTier, *block: Any) -> Any:
        gate.pass_through()
        return append(tier, *block)

    monkeypatch.setattr(DiskTier, "append", slow)
    async with (
        served(folder, disk_bytes="8MiB", dir=str(folder / "kv")) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(3)
        answer = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK, wait_s=0.05)
        assert "not done in time" in answer.problem
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.HOST,),) * 3
        gate.open()


async def test_a_store_that_is_stopped_does_not_recover_its_disk_to_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping, and beginning anew for another model, took as long as the recovery."""
    gate, segment, close, seen = Gate(), Recovery._segment, DiskTier.close, []
    async with (
        served(folder, disk_bytes="1MiB", dir=str(folder / "kv")) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        for seed in range(3):
            keys = await worker.put_prompt(30, seed)
            await gateway.until(lambda keys=keys: gateway.on(Tier.DISK) >= set(keys))
    segments = len(list((folder / "kv").glob("*.kv")))

    def slow(recovery: Recovery, number: int) -> None:
        gate.pass_through()
        seen.append(number)
        segment(recovery, number)

    def closing(tier: DiskTier) -> None:
        threading.Timer(0.2, gate.open).start()
        close(tier)

    monkeypatch.setattr(Recovery, "_segment", slow)
    monkeypatch.setattr(DiskTier, "close", closing)
    async with (
        served(folder, disk_bytes="1MiB", dir=str(folder / "kv")) as path,
        FakeWorker(path),
    ):
        await gate.reached()
    assert 1 <= len(seen) < segments


# ── whose ────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_brought_up_from_the_remote_is_its_tenants_as_workers_name_it(
    folder: Path,
) -> None:
    """It was nobody's: no quota, and a clear of its tenant did not find it."""
    remote = RemoteDict()
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
    headers = [decode_header(value) for value in remote.kept.values()]
    assert all(isinstance(one, RecordHeader) for one in headers)
    assert {one.block.tenant for one in headers if isinstance(one, RecordHeader)} == {worker.tenant}
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        assert (await gateway.ask(StoreOp.PREFETCH, keys, tenant=worker.tenant)).blocks == 3
        remote.silent = True
        assert (await gateway.ask(StoreOp.CLEAR, tenant=worker.tenant)).blocks == 3
        assert gateway.on(Tier.HOST) == set()


async def test_what_is_cleared_while_a_recovered_disk_is_announced_is_not_announced_after(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.live.store.disk_blocks.slices", partial(slices, size=1))
    table = {"disk_bytes": "8MiB", "dir": str(folder / "kv")}
    async with (
        served(folder, **table) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(60)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
    async with served(folder, **table) as path, FakeGateway(path) as gateway, FakeWorker(path):
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
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(20)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))

    def slow(tier: RemoteTier, place: int) -> Any:
        said = some(tier, place)
        gate.pass_through()
        return said

    monkeypatch.setattr(RemoteTier, "some", slow)
    async with (
        served(folder, values=remote) as path,
        FakeGateway(path) as gateway,
        FakeWorker(path),
    ):
        await gate.reached()
        asked = asyncio.create_task(gateway.ask(StoreOp.CLEAR))
        gate.open()
        assert (await asked).blocks == 20
        await gateway.until(lambda: not gateway.held)
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((),) * 20


# ── move ─────────────────────────────────────────────────────────────────────────────────────────


def emptied(disk: Path) -> None:
    """As `rm -rf DIR/*` does."""
    for file in disk.iterdir():
        file.unlink()


async def test_a_move_to_an_emptied_folder_loses_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It said that all had moved, and dropped them from memory."""
    disk = folder / "kv"
    async with (
        served(folder, disk_bytes="8MiB", dir=str(disk)) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(5)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        emptied(disk)
        assert (await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)).blocks == 5
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.DISK,),) * 5
        assert await worker.fetch(keys) == [content_of(key) for key in keys]
    assert [line for line in caplog.messages if "deleted while the store runs" in line][1:] == []


async def test_a_block_that_can_not_be_read_back_stays_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, append = folder / "kv", DiskTier.append

    def deleted(tier: DiskTier, *block: Any) -> Any:
        outcome = append(tier, *block)
        emptied(disk)
        return outcome

    monkeypatch.setattr(DiskTier, "append", deleted)
    async with (
        served(folder, disk_bytes="8MiB", dir=str(disk)) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(5)
        assert (await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)).blocks == 0
        assert (await gateway.ask(StoreOp.LOOKUP, keys)).tiers == ((Tier.HOST,),) * 5


@pytest.mark.parametrize("op", [StoreOp.STATS, StoreOp.LOOKUP, StoreOp.VERIFY])
async def test_whoever_looks_notices_deleted_files(
    folder: Path, op: StoreOp, caplog: pytest.LogCaptureFixture
) -> None:
    disk = folder / "kv"
    async with (
        served(folder, disk_bytes="8MiB", dir=str(disk)) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(5)
        await gateway.until(lambda: gateway.on(Tier.DISK) == set(keys))
        emptied(disk)
        answer = await gateway.ask(op, keys if op is StoreOp.LOOKUP else ())
        await gateway.until(lambda: not gateway.on(Tier.DISK))
        assert answer.blocks == {StoreOp.STATS: 0, StoreOp.LOOKUP: 5, StoreOp.VERIFY: 5}[op]
        [_, stats] = (await gateway.ask(StoreOp.STATS)).stats
        assert (stats.blocks, dict(stats.dropped)["lost"]) == (0, 5)
    [_] = [line for line in caplog.messages if "deleted while the store runs" in line]


async def test_a_fetch_that_meets_a_deleted_file_forgets_all_of_it(folder: Path) -> None:
    disk = folder / "kv"
    async with (
        served(folder, disk_bytes="8MiB", dir=str(disk)) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(5)
        assert (await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)).blocks == 5
        emptied(disk)
        assert await worker.fetch(keys[:1]) == []
        await gateway.until(lambda: not gateway.on(Tier.DISK))


async def test_what_is_pinned_is_not_moved(folder: Path) -> None:
    """The pin went with the move, and nobody heard of it."""
    async with (
        served(folder, disk_bytes="8MiB", dir=str(folder / "kv")) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        keys = await worker.put_prompt(5)
        assert (await gateway.ask(StoreOp.PIN, keys[:2])).blocks == 2
        answer = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
        assert (answer.blocks, answer.note.split(":")[0]) == (3, "2 are pinned and stay in memory")
        assert (await gateway.ask(StoreOp.STATS)).stats[0].pinned_blocks == 2
        assert (await gateway.ask(StoreOp.UNPIN, keys)).blocks == 2
        answer = await gateway.ask(StoreOp.MOVE, keys, tier=Tier.DISK)
        assert (answer.blocks, answer.note) == (5, "")


# ── a remote that has forgotten ──────────────────────────────────────────────────────────────────


async def test_a_verify_counts_what_the_remote_has_lost(folder: Path) -> None:
    """It said that all blocks are what they were, of a Redis that had started again, empty."""
    remote = RemoteDict()
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
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
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        remote.kept.clear()
        assert (await gateway.ask(StoreOp.PREFETCH, keys)).blocks == 0
        await gateway.until(lambda: not gateway.on(Tier.REMOTE))
        await worker.put_prompt(3)
        await gateway.until(lambda: gateway.on(Tier.REMOTE) == set(keys))
        assert len(remote.kept) == 3


@pytest.mark.parametrize("whose", ["all", "tenant", "keys"])
async def test_a_clear_leaves_no_belief_in_what_the_remote_has_lost(
    folder: Path, whose: str
) -> None:
    remote = RemoteDict()
    async with (
        served(folder, values=remote) as path,
        FakeWorker(path) as worker,
        FakeGateway(path) as gateway,
    ):
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
