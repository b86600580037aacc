"""What a worker holds, told over a real socket from its journal to its gateway's fleet."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from link_kit import (
    Door,
    Lives,
    PuppetWorker,
    Serving,
    request,
    running,
    token,
    until,
    worker_info,
)

from antiphon.core.router import PrefixIndex
from antiphon.errors import PeerError
from antiphon.live import kv_journal, unread
from antiphon.live.gateway import Fleet
from antiphon.live.kv_journal import KvJournal, KvNews
from antiphon.live.worker_port import WorkerPort
from antiphon.types import (
    BlockKey,
    BlockRemoved,
    BlockStored,
    ClusterConfig,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    Tier,
    WorkerId,
    WorkerInfo,
)
from antiphon.wire import Kind

W0 = WorkerId("w0")


def key(number: int) -> BlockKey:
    return number.to_bytes(32, "little")


class Memory:
    """A worker's prefix cache, as far as its journal is concerned."""

    def __init__(self, kept: int = kv_journal.KEPT_CHANGES) -> None:
        self.held: dict[BlockKey, None] = {}
        self.journal = KvJournal(lambda: [(key, Tier.DEVICE) for key in self.held], kept=kept)

    def store(self, *numbers: int) -> None:
        for number in numbers:
            self.held[key(number)] = None
            self.journal.heard(BlockStored(key(number), None))

    def remove(self, *numbers: int) -> None:
        for number in numbers:
            del self.held[key(number)]
            self.journal.heard(BlockRemoved(key(number)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "sockets"
    path.mkdir(mode=0o700)
    return path


@asynccontextmanager
async def telling(worker: PuppetWorker, gateway: Path, memory: Memory) -> AsyncIterator[Serving]:
    lives = Lives(worker)
    made = WorkerPort(
        worker, gateway, new_life=lives.next, clock=time.monotonic, journal=memory.journal
    )
    async with running(made.run()) as task:
        yield Serving(made, task, lives)


class Gateway:
    """A fleet that hears, and an index that it feeds."""

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.heard: list[tuple[Incarnation, KvNews]] = []
        self.replays = 0
        self.drop: set[int] = set()
        """Messages that get lost, by place."""
        self.fleet = Fleet(
            ClusterConfig(),
            clock=time.monotonic,
            on_events=lambda worker, events: None,
            on_change=lambda event: None,
            on_failure=self._fail,
            on_kv_news=self._hear,
        )
        self.failed: list[BaseException] = []

    def _fail(self, error: BaseException) -> None:
        self.failed.append(error)

    def _hear(self, worker: WorkerInfo, news: KvNews) -> KvReplay | None:
        self.heard.append((worker.incarnation, news))
        if len(self.heard) - 1 in self.drop:
            return None
        wish = self.index.apply(worker.id, worker.incarnation, news, time.monotonic())
        self.replays += wish is not None
        return wish

    def knows(self, memory: Memory) -> bool:
        return self.index.held_by(W0) == frozenset(memory.held)


async def test_the_gateway_knows_what_the_worker_holds(folder: Path) -> None:
    memory, gateway = Memory(), Gateway()
    memory.store(1, 2, 3)
    async with Door(folder) as door, telling(PuppetWorker(worker_info()), door.path, memory):
        gateway.fleet.join(await door.link())
        await until(lambda: gateway.knows(memory))
        memory.store(4)
        memory.remove(1)
        await until(lambda: gateway.knows(memory))
        [(_, dump), (_, events)] = gateway.heard
        assert isinstance(dump, KvDump)
        changes = (KvChange(key(4), Tier.DEVICE, True), KvChange(key(1), Tier.DEVICE, False))
        assert events == KvEvents(first=3, changes=changes), "what came together goes together"
        assert gateway.failed == []


async def test_what_got_lost_is_asked_for_and_said_again(folder: Path) -> None:
    memory, gateway = Memory(), Gateway()
    gateway.drop = {1}
    async with Door(folder) as door, telling(PuppetWorker(worker_info()), door.path, memory):
        gateway.fleet.join(await door.link())
        await until(lambda: len(gateway.heard) == 1)
        memory.store(1)
        await until(lambda: len(gateway.heard) == 2)
        assert not gateway.knows(memory)
        memory.store(2)
        await until(lambda: gateway.knows(memory))
        assert gateway.replays == 1


async def test_another_life_says_all_of_it_under_its_own_name(folder: Path) -> None:
    """LMCache 2143: what an earlier life had stayed in the index."""
    memory, gateway = Memory(), Gateway()
    memory.store(1, 2)
    async with Door(folder) as door, telling(PuppetWorker(worker_info()), door.path, memory) as one:
        gateway.fleet.join(await door.link())
        await until(lambda: gateway.knows(memory))
        one.stream.end("the test wants it")
        memory.remove(2)
        gateway.fleet.join(await door.link(1))
        await until(lambda: gateway.knows(memory))
        assert [life for life, _ in gateway.heard] == ["life-1", "life-2"]


async def test_a_gateway_that_does_not_read_costs_no_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader must neither slow the worker nor make it keep all that it has not said."""
    monkeypatch.setattr(unread, "MAX_UNREAD_BYTES", 20_000)
    memory, gateway = Memory(kept=64), Gateway()
    async with Door(folder) as door, telling(PuppetWorker(worker_info()), door.path, memory) as one:
        link = await door.link()
        for number in range(20_000):
            memory.store(number)
            if number % 16 == 0:
                await asyncio.sleep(0)
        await until(lambda: not one.stream._room.is_set() or link._stream._paused)
        assert len(memory.journal._ring) == 64
        gateway.fleet.join(link)
        await until(lambda: gateway.knows(memory))


async def test_events_come_while_kv_news_do(folder: Path) -> None:
    memory, worker = Memory(), PuppetWorker(worker_info())
    async with Door(folder) as door, telling(worker, door.path, memory):
        link = await door.link()
        one = request()
        await link.add(one)
        events, news = link.events(), link.kv_news()
        assert isinstance(await anext(news), KvDump)
        for index in range(50):
            worker.say(token(one, index))
            memory.store(index)
            assert list(await anext(events)) == [token(one, index)]
            said = await anext(news)
            assert isinstance(said, KvEvents)
            assert said.first == index


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.KV_EVENTS, KvEvents(first=0, changes=(KvChange(b"x", Tier.DEVICE, True),))),
        (Kind.KV_EVENTS, KvEvents(first=0, changes=(KvChange(key(1), Tier.HOST, True),))),
        (Kind.KV_DUMP, KvDump(next=-5, begins=True, ends=True, blocks=())),
    ],
)
async def test_a_worker_that_says_what_can_not_be_is_lost(
    folder: Path, kind: Kind, said: object
) -> None:
    memory, gateway = Memory(), Gateway()
    async with Door(folder) as door, telling(PuppetWorker(worker_info()), door.path, memory) as one:
        gateway.fleet.join(await door.link())
        await until(lambda: len(gateway.heard) == 1)
        one.stream.send(kind, said)
        await until(lambda: gateway.fleet.link(W0) is None)
        assert len(gateway.heard) == 1
        assert gateway.failed == []


async def test_news_end_with_the_stream_and_say_why(folder: Path) -> None:
    memory = Memory()
    async with Door(folder) as door:
        async with telling(PuppetWorker(worker_info()), door.path, memory):
            link = await door.link()
            news = link.kv_news()
            await anext(news)
        with pytest.raises(PeerError, match="worker w0: "):
            await anext(news)
        link.kv_replay(KvReplay(0))  # to nobody: no error


async def test_a_worker_without_a_journal_says_nothing(folder: Path) -> None:
    async with Door(folder) as door:
        made = WorkerPort(
            worker := PuppetWorker(worker_info()),
            door.path,
            new_life=Lives(worker).next,
            clock=time.monotonic,
        )
        async with running(made.run()):
            link = await door.link()
            news = asyncio.ensure_future(anext(link.kv_news()))
            one = request()
            await link.add(one)
            worker.say(token(one, 0))
            await anext(link.events())
            assert not news.done()
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)
