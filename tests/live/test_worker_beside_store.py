"""A worker with a real model beside a real store process that is killed, stopped and restarted."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from link_kit import until
from store_callers import FakeGateway
from store_kit import RealStore, real_store
from store_worker import BLOCK, StoreWorker, prompt, request, said_alone, store_worker, tiny_model

from antiphon.types import Tier

pytestmark = pytest.mark.timeout(180)
BLOCKS = 5
PROMPT = prompt(BLOCKS)
KNOWN = BLOCKS * BLOCK
LOST = {"lost_after_s": 0.5}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(model: Path) -> Path:
    model.chmod(0o700)
    return model


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[RealStore]:
    disk = folder / "disk"
    disk.mkdir(mode=0o700, exist_ok=True)
    async with real_store(folder, cluster=LOST, disk_bytes="8MiB", dir=str(disk)) as running:
        yield running


async def ready(side: StoreWorker) -> None:
    await until(lambda: side.connected)


async def test_killed_stopped_and_restarted_nothing_changes_but_where_kv_comes_from(
    folder: Path, store: RealStore
) -> None:
    """InfiniStore 179: the server's crash was everybody's. LMCache 1788: a restart forgot all."""
    expected = await said_alone(folder, request("r", PROMPT))

    async with store_worker(folder, "first", **LOST) as side:
        await ready(side)
        assert await side.ask(request("r", PROMPT)) == (expected,)
        async with FakeGateway(store.path) as gateway:
            await gateway.until(lambda: len(gateway.on(Tier.HOST)) == BLOCKS)
            await gateway.until(lambda: len(gateway.on(Tier.DISK)) == BLOCKS)

    async with store_worker(folder, "second", **LOST) as side:
        await ready(side)
        asked = request("from-host", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == KNOWN

    await store.kill()
    async with store_worker(folder, "third", **LOST) as side:
        asked = request("without", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == 0
        await store.start()
        await ready(side)

    async with store_worker(folder, "fourth", **LOST) as side:
        await ready(side)
        asked = request("from-disk", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == KNOWN

    async with store_worker(folder, "fifth", fetch_timeout_s=60.0, **LOST) as side:
        await ready(side)
        os.kill(store.pid, signal.SIGSTOP)
        try:
            asked = request("stopped", PROMPT)
            assert await side.ask(asked, fetch=KNOWN) == (expected,)
            assert side.fetched(asked).fetched_tokens == 0
            await until(lambda: not side.connected)
        finally:
            os.kill(store.pid, signal.SIGCONT)
        await ready(side)
        await side.rest()


async def test_a_store_that_was_killed_and_has_no_disk_gets_it_from_a_worker(folder: Path) -> None:
    """A put that was lost never came again."""
    expected = await said_alone(folder, request("r", PROMPT))
    async with real_store(folder, cluster=LOST) as store:
        async with store_worker(folder, "first", **LOST) as side:
            await ready(side)
            assert await side.ask(request("r", PROMPT)) == (expected,)
            await store.kill()
            await until(lambda: not side.connected)
            await store.start()
            await ready(side)
            async with FakeGateway(store.path) as gateway:
                await gateway.until(lambda: len(gateway.on(Tier.HOST)) == BLOCKS)
            await side.rest()
        async with store_worker(folder, "second", **LOST) as side:
            await ready(side)
            asked = request("again", PROMPT)
            assert await side.ask(asked, fetch=KNOWN) == (expected,)
            assert side.fetched(asked).fetched_tokens == KNOWN
