"""A worker's process without its process: what it opens, and the code that it ends with."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from link_kit import IDENTITY, KV, Door, request, until
from live_kit import MODEL, Engine, scheduler
from network_kit import LOOPBACK, make_keys
from peer_kit import Taker
from scripted_store import ScriptedStore

from antiphon.core.config import as_mapping, build
from antiphon.core.handover import LeaseBook
from antiphon.errors import BugError, PeerError, UsageError
from antiphon.live import store_client, worker_process
from antiphon.live.kv_commit import KvCommit
from antiphon.live.loaded_engine import LoadedEngine
from antiphon.live.socket_folder import data_socket
from antiphon.live.supervisor.messages import Launch, Ready, Stop
from antiphon.live.supervisor.parent import Parent
from antiphon.live.worker import MAX_FAULTS_IN_A_ROW
from antiphon.live.worker_process import serve_worker, work
from antiphon.store.transfer import OwnedRegion
from antiphon.types import Admitted, LeaseId, StepPlan, WorkerId

pytestmark = pytest.mark.timeout(60)
NAME = WorkerId("mixed-0")


class FakeParent:
    """A supervisor that says what the test wants it to."""

    def __init__(self, folder: Path) -> None:
        self.config = build({"cluster": {"heartbeat_s": 0.05, "lost_after_s": 20.0}})
        self.launch = Launch(name=NAME, config=as_mapping(self.config), sockets=str(folder))
        self.told: list[object] = []
        self.say: Callable[[object], None] = lambda message: None

    def listen(self, hear: Callable[[object], None]) -> None:
        self.say = hear

    def tell(self, message: object) -> None:
        self.told.append(message)


class Process:
    """`serve_worker` beside its gateway. Use as `async with`; `code` is what it ended with."""

    def __init__(
        self,
        folder: Path,
        fails: Callable[[StepPlan], bool] = lambda plan: False,
        region: OwnedRegion | None = None,
        commit: KvCommit | None = None,
    ) -> None:
        folder.chmod(0o700)
        self.folder = folder
        self.parent = FakeParent(folder)
        self.door = Door(folder)
        self.engine = Engine(fails=fails)
        loaded = LoadedEngine(
            info=replace(MODEL, identity=IDENTITY),
            max_model_len=256,
            scheduler=scheduler(),
            engine=cast(Any, self.engine),
            layers=1,
            region=region,
            commit=commit,
        )
        self._work = serve_worker(cast(Parent, self.parent), loaded, None)

    async def __aenter__(self) -> "Process":
        await self.door.__aenter__()
        self.code = asyncio.create_task(self._work)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.parent.say(Stop())
        await asyncio.wait([self.code])
        await self.door.__aexit__()


async def test_an_engine_that_fails_over_and_over_ends_the_process(tmp_path: Path) -> None:
    """The supervisor starts another then: one that can't compute must not stay."""
    async with Process(tmp_path, fails=lambda plan: True) as process:
        link = await process.door.link()
        for number in range(MAX_FAULTS_IN_A_ROW):
            assert isinstance(await link.add(request(f"r{number}")), Admitted)
            await until(lambda: len(process.engine.plans) > number)  # noqa: B023
        assert await process.code == 1
        assert process.parent.told == [Ready()]


async def test_told_to_stop_it_ends_well(tmp_path: Path) -> None:
    async with Process(tmp_path) as process:
        await process.door.link()
        process.parent.say(Stop())
        assert await process.code == 0


async def test_a_worker_alone_opens_no_door_to_its_memory(tmp_path: Path) -> None:
    async with Process(tmp_path) as process:
        assert (await process.door.link()).info.kv is None
        assert not data_socket(tmp_path, NAME).exists()


async def test_among_others_it_does_while_it_serves(tmp_path: Path) -> None:
    region = OwnedRegion(KV)
    async with Process(tmp_path, region=region) as process:
        assert (await process.door.link()).info.kv == KV
        assert data_socket(tmp_path, NAME).is_socket()
    assert process.code.result() == 0
    assert not data_socket(tmp_path, NAME).exists()
    region.close()


async def test_takers_of_a_former_life_are_let_go(tmp_path: Path) -> None:
    """vLLM 49238: after a restart under the same name stale metadata was used."""
    region = OwnedRegion(KV)
    async with Process(tmp_path, region=region) as process:
        link = await process.door.link()
        life = link.info.incarnation
        taker = Taker(data_socket(tmp_path, NAME), owner=NAME, owner_life=life)
        assert await taker.client.open()
        await link.close("the gateway has given it up")
        await until(lambda: not taker.client.connected)
        assert (await process.door.link(1)).info.incarnation != life
        assert not await taker.client.open()
        taker.client.close()
    region.close()


async def test_a_law_that_breaks_while_a_taker_asks_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a protocol's callback raises has no caller but the loop, which would go on."""

    def broken(*_: object) -> None:
        raise BugError("for a test")

    monkeypatch.setattr(LeaseBook, "take", broken)
    region = OwnedRegion(KV)
    async with Process(tmp_path, region=region) as process:
        life = (await process.door.link()).info.incarnation
        taker = Taker(data_socket(tmp_path, NAME), owner=NAME, owner_life=life)
        assert await taker.client.open()
        with pytest.raises(PeerError):
            await taker.client.take(LeaseId("lease"), 1)
        with pytest.raises(BugError, match="for a test"):
            await process.code
        taker.client.close()
    region.close()


class Poor(OwnedRegion):
    """A region for which there is no memory."""

    def back(self, first: int, count: int) -> bool:
        return not count


async def test_too_little_memory_for_kv_ends_the_process_with_the_remedy(tmp_path: Path) -> None:
    """Though it has joined already: no step may meet the lack of it."""
    region = Poor(KV, commit=False)
    async with Process(tmp_path, region=region, commit=KvCommit(region)) as process:
        with pytest.raises(UsageError, match=r"lower kv\.memory_bytes"):
            await process.code
    region.close()


class Watched(KvCommit):
    """Knows whether it was stopped."""

    stopped = False

    def stop(self) -> None:
        """See `KvCommit`."""
        self.stopped = True
        super().stop()


async def test_one_that_can_not_begin_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object) -> None:
        raise UsageError("kv.events: for a test")

    monkeypatch.setattr(worker_process, "followed", nobody)
    region = OwnedRegion(KV, commit=False)
    commit = Watched(region)
    async with Process(tmp_path, region=region, commit=commit) as process:
        with pytest.raises(UsageError, match="for a test"):
            await process.code
    assert commit.stopped
    commit.done.result(30)
    region.close()


async def test_it_joins_when_it_has_the_store(tmp_path: Path) -> None:
    """The first request after a restart was computed, though the store had its prompt."""
    region = OwnedRegion(KV)
    tmp_path.chmod(0o700)
    async with ScriptedStore(tmp_path, KV) as store:
        store.welcome = None
        async with Process(tmp_path, region=region) as process:
            joining = asyncio.create_task(process.door.link())
            await until(lambda: len(store.hellos) == 1)
            await asyncio.sleep(0.1)
            assert not joining.done()
            store.answer_hellos()
            await joining
            assert len(store.callers) == 1
    region.close()


async def test_it_joins_without_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_client, "SETTLING_S", 0.1)
    region = OwnedRegion(KV)
    tmp_path.chmod(0o700)
    async with ScriptedStore(tmp_path, KV) as store:
        store.welcome = None
        async with Process(tmp_path, region=region) as process:
            await process.door.link()
            assert len(store.hellos) == 1 and not store.callers
    region.close()


async def test_it_uses_the_store_of_its_cluster(tmp_path: Path) -> None:
    region = OwnedRegion(KV)
    tmp_path.chmod(0o700)
    async with ScriptedStore(tmp_path, KV) as store, Process(tmp_path, region=region) as process:
        link = await process.door.link()
        await until(lambda: len(store.callers) == 1)
        (hello,) = store.hellos
        assert (hello.worker, hello.incarnation) == (NAME, link.info.incarnation)
        assert (hello.identity, hello.kv) == (IDENTITY, KV)
        await link.close("the gateway has given it up")
        again = await process.door.link(1)
        await until(lambda: len(store.hellos) == 2)
        assert store.hellos[1].incarnation == again.info.incarnation != hello.incarnation
    region.close()


def test_without_nixl_it_ends_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    make_keys(tmp_path / "keys", "box1")
    network = {
        "keys": str(tmp_path / "keys" / "box1"),
        "addresses": [LOOPBACK],
        "encrypt_kv": False,
        "kv_transport": "nixl",
    }
    parent = FakeParent(tmp_path)
    parent.config = build({"network": network, "model": {"name": "nobody-opens-this"}})
    monkeypatch.setitem(sys.modules, "nixl._api", None)
    monkeypatch.setattr(worker_process, "use_cores", lambda cores: None)
    with pytest.raises(UsageError, match=r"^network\.kv_transport = .* pip install .*\[nixl\]"):
        work(cast(Parent, parent))
