"""A gateway watches a store over a real socket, and goes on without one."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_store import EMPTY, STATS, AnsweringStore, plain_answer
from link_kit import running, turns, until

from antiphon.errors import PeerError
from antiphon.live import watched_store
from antiphon.live.kv_journal import KvNews
from antiphon.live.watched_store import WatchedStore
from antiphon.types import (
    ClusterConfig,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    StoreAnswer,
    StoreAsk,
    StoreOp,
    StoreRefusal,
    StoreRefused,
    StoreWatch,
    Tier,
)
from antiphon.wire import Kind

GATEWAY = Incarnation("gateway-1")
KEY = bytes(32)
LOOKUP = StoreAsk(op=StoreOp.LOOKUP, keys=(KEY, KEY))
CHANGED = KvEvents(first=3, changes=(KvChange(KEY, Tier.HOST, True),))


class Heard:
    """What the gateway is told, and what it wants again."""

    def __init__(self) -> None:
        self.news: list[tuple[Incarnation, KvNews]] = []
        self.left = 0
        self.wants: KvReplay | None = None

    def hear(self, life: Incarnation, news: KvNews) -> KvReplay | None:
        self.news.append((life, news))
        return self.wants

    def leave(self) -> None:
        self.left += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "sockets"
    path.mkdir(mode=0o700)
    return path


@asynccontextmanager
async def watching(
    path: Path, heard: Heard, config: ClusterConfig | None = None
) -> AsyncIterator[WatchedStore]:
    store = WatchedStore(
        path,
        GATEWAY,
        config or ClusterConfig(),
        on_news=heard.hear,
        on_left=heard.leave,
        clock=time.monotonic,
    )
    async with running(store.run()):
        yield store


async def test_it_hears_all_that_the_store_holds_and_what_changes(folder: Path) -> None:
    heard, path = Heard(), folder / "store.sock"
    async with AnsweringStore(path) as store, watching(path, heard) as watched:
        await until(lambda: watched.present and bool(watched.stats))
        assert store.watched == [StoreWatch(gateway=GATEWAY)]
        assert watched.stats == STATS
        assert watched.pid == os.getpid()
        heard.wants = KvReplay(1)
        store.say(Kind.KV_EVENTS, CHANGED)
        await until(lambda: store.replays == [KvReplay(1)])
        [(life, dump), (again, events)] = heard.news
        assert (dump, events, life) == (EMPTY, CHANGED, again)
    assert heard.left == 1


async def test_it_asks_and_many_may_wait(folder: Path) -> None:
    heard, path = Heard(), folder / "store.sock"
    async with AnsweringStore(path) as store, watching(path, heard) as watched:
        await until(lambda: watched.present)
        asks = [StoreAsk(op=StoreOp.PIN, keys=(KEY,) * n, wait_s=10) for n in range(1, 20)]
        answers = await asyncio.gather(*(watched.ask(one, 10) for one in asks))
        assert [one.blocks for one in answers] == list(range(1, 20))
        assert store.asked == asks
        assert (await watched.ask(LOOKUP, 10)).tiers == ((Tier.HOST,), ())


async def test_without_a_store_a_gateway_is_told_so(folder: Path) -> None:
    heard = Heard()
    async with watching(folder / "store.sock", heard) as watched:
        await turns()
        assert not watched.present
        with pytest.raises(PeerError, match="KV store is not there"):
            await watched.ask(LOOKUP, 1.0)
        assert (heard.news, heard.left, watched.stats) == ([], 0, ())


async def test_a_store_that_comes_late_and_comes_back_is_another_life(folder: Path) -> None:
    """LMCache 2143, Mooncake 2039: what a restarted store had stayed in everybody's metadata."""
    heard, path = Heard(), folder / "store.sock"
    async with watching(path, heard) as watched:
        await turns()
        async with AnsweringStore(path):
            await until(lambda: watched.present)
        await until(lambda: heard.left == 1)
        assert not watched.present
        assert (watched.stats, watched.pid) == ((), None)
        async with AnsweringStore(path):
            await until(lambda: watched.present)
            lives = {life for life, _ in heard.news}
            assert (len(heard.news), len(lives), watched.connections) == (2, 2, 2)


async def test_an_ask_ends_when_its_time_is_over_and_when_the_store_goes(folder: Path) -> None:
    """Mooncake 1088: calls to a store that hung waited for 60 s."""

    def silent(ask: StoreAsk) -> StoreAnswer | None:
        return plain_answer(ask) if ask.op is StoreOp.STATS else None

    heard, path = Heard(), folder / "store.sock"
    async with AnsweringStore(path, answer=silent) as store, watching(path, heard) as watched:
        await until(lambda: watched.present)
        with pytest.raises(PeerError, match=r"did not answer within 0.02 s"):
            await watched.ask(LOOKUP, 0.02)
        waiting = asyncio.create_task(watched.ask(LOOKUP, 60))
        await until(lambda: len(store.asked) == 2)
        store.hang_up()
        with pytest.raises(PeerError, match="the KV store: "):
            await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ((Kind.STORE_REFUSED, StoreRefused(StoreRefusal.FULL, "64 gateways are here")), "64 gate"),
        ((Kind.KV_DUMP, replace(EMPTY, blocks=((b"short", Tier.HOST),))), "5 bytes"),
        ((Kind.KV_DUMP, replace(EMPTY, blocks=((KEY, Tier.DEVICE),))), "tier device"),
        ((Kind.KV_DUMP, replace(EMPTY, next=-1)), "next is -1"),
        ((Kind.STORE_WELCOME, None), "malformed|for workers"),
    ],
)
async def test_what_is_no_store_of_ours_is_left_and_tried_again(
    folder: Path, first: tuple[Kind, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard, path = Heard(), folder / "store.sock"
    async with AnsweringStore(path, first=first) as store, watching(path, heard) as watched:
        await until(lambda: len(store.watched) >= 2)
        assert not watched.present
    assert heard.news == []
    if first[0] is not Kind.STORE_WELCOME:
        assert any(part in caplog.text for part in said.split("|"))


async def test_an_answer_that_can_not_be_ends_the_stream(folder: Path) -> None:
    def liar(ask: StoreAsk) -> StoreAnswer:
        return plain_answer(ask) if ask.op is StoreOp.STATS else StoreAnswer(blocks=-1)

    heard, path = Heard(), folder / "store.sock"
    async with AnsweringStore(path, answer=liar) as store, watching(path, heard) as watched:
        await until(lambda: watched.present)
        with pytest.raises(PeerError, match="blocks is -1"):
            await watched.ask(StoreAsk(op=StoreOp.PIN, keys=(KEY,)), 10)
        await until(lambda: len(store.watched) == 2 and watched.present)
        assert heard.left == 1


async def test_a_store_that_says_nothing_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was stopped must not be waited for."""
    monkeypatch.setattr(watched_store, "CONNECT_TIMEOUT_S", 0.05)
    heard, path = Heard(), folder / "store.sock"
    silent = AnsweringStore(path, first=(Kind.HEARTBEAT, None))
    async with silent as store, watching(path, heard) as watched:
        await until(lambda: len(store.watched) >= 2)
        assert not watched.present
        assert len(store.endings) >= 1


async def test_a_long_dump_comes_in_parts(folder: Path) -> None:
    heard, path = Heard(), folder / "store.sock"
    first = KvDump(next=9, begins=True, ends=False, blocks=((KEY, Tier.HOST),))
    last = KvDump(next=9, begins=False, ends=True, blocks=((KEY, Tier.DISK),))
    async with AnsweringStore(path, first=(Kind.KV_DUMP, first)) as store, watching(path, heard):
        await until(lambda: len(heard.news) == 1)
        store.say(Kind.KV_DUMP, last)
        await until(lambda: len(heard.news) == 2)
        assert [news for _, news in heard.news] == [first, last]
