"""What a store has made when the next part of it can't be made is given back: no thread, no open
file and no memory stays, and the same store serves whoever comes later."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from encoded_kit import SHAPE, CodedWorker
from pool_kit import free_ports, pool_table
from store_callers import FakeGateway, FakeWorker, until
from store_kit import RemoteDict, on_disk, served

from antiphon.core.config import build
from antiphon.errors import PeerError, UsageError
from antiphon.live.socket_folder import STORE_SOCKET
from antiphon.live.store_process import serve_store, slower_tiers
from antiphon.types import Tier


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Of threads whose names begin so only that many more can be started."""
    left = dict[str, int]()
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        for beginning in left:
            if thread.name.startswith(beginning):
                left[beginning] -= 1
                if left[beginning] < 0:
                    raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return left


def threads() -> list[str]:
    return sorted(one.name for one in threading.enumerate() if one.name.startswith("kv-"))


def opened(folder: Path) -> Iterator[str]:
    """What this process has open: files below the folder, shared memory, and ports."""
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            there = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if there.startswith((str(folder), "/memfd:", "socket:")):
            yield there


def held(folder: Path) -> tuple[list[str], list[str]]:
    """Threads, and what is open, without what only waits to be collected."""
    gc.collect()
    return threads(), sorted(opened(folder))


async def test_a_remote_tier_that_can_not_be_made_leaves_no_disk_open(
    folder: Path, refused: dict[str, int]
) -> None:
    async with (
        served(folder, values=RemoteDict(), **on_disk(folder)) as path,
        FakeGateway(path) as gateway,
    ):
        for name in ("kv-remote-write", "kv-remote-read"):
            before = held(folder)
            refused[name] = 0
            with pytest.raises(PeerError, match="new thread"):
                await FakeWorker(path).open()
            await until(lambda before=before: held(folder) == before)
            refused.clear()
        async with FakeWorker(path) as worker:
            keys = await worker.put_prompt(blocks=3)
            await gateway.until(lambda: set(keys) <= gateway.on(Tier.DISK))


async def test_a_lender_of_encoded_blocks_that_can_not_be_made_leaves_nothing(
    folder: Path, refused: dict[str, int]
) -> None:
    table = {**pool_table("a", free_ports(1)[0], []), "level": "int8"}
    memory = 64 * 4 * SHAPE.page_bytes
    async with served(folder, pool=table, memory_bytes=memory) as path, FakeGateway(path):
        before = held(folder)
        for name, others in (("kv-encode", 0), ("kv-encode", 1), ("kv-accept", 1)):
            refused[name] = others  # the store's own pages are served before
            with pytest.raises(PeerError, match="new thread"):
                await CodedWorker(path).open()
            await until(lambda: held(folder) == before)
            refused.clear()
        async with CodedWorker(path) as worker:
            await worker.put(2)


async def test_a_store_that_can_not_begin_leaves_neither_its_disk_nor_its_place_in_a_pool(
    folder: Path, refused: dict[str, int]
) -> None:
    [port] = free_ports(1)
    table = pool_table("a", port, [])
    disk = {"memory_bytes": "1MiB", "disk_bytes": "8MiB", "dir": str(folder / "kv")}
    config = build({"store": disk, "store_pool": table})

    async def begin() -> None:
        slower = slower_tiers(config)
        path = folder / STORE_SOCKET
        await serve_store(config, path, slower, asyncio.Event(), on_ready=lambda: None)

    (folder / "other").mkdir(mode=0o700)
    async with served(folder / "other", pool={**table, "name": "b"}):
        before = held(folder)
        with pytest.raises(UsageError, match=r"store_pool\.listen"):
            await begin()
        assert held(folder) == before
    before = held(folder)
    refused["kv-map"] = 0
    with pytest.raises(UsageError, match="new thread"):
        await begin()
    assert held(folder) == before
