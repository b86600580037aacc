"""A worker's stream to the store: whatever the store does, the worker goes on."""

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import uvloop
from link_kit import until
from scripted_store import (
    ScriptedStore,
    client,
    copied_out,
    hello,
    mapped,
    open_descriptors,
    session_of,
    using,
)

from antiphon.errors import BugError, PeerError
from antiphon.live import store_client
from antiphon.live.loop_guard import guard_loop
from antiphon.live.store_client import StoreClient, StoreState
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import (
    Incarnation,
    KvShape,
    Locate,
    PagePull,
    StoreHello,
    StoreRefusal,
    StoreRefused,
    StoreWelcome,
)
from antiphon.wire import Frame, Kind, encode, pack_frame

pytestmark = pytest.mark.timeout(60)
SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=64)
KEY = b"k" * 32


@pytest.fixture
def region() -> Iterator[OwnedRegion]:
    made = OwnedRegion(SHAPE)
    yield made
    made.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


async def test_a_worker_introduces_itself_and_reads_the_stores_memory(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    async with ScriptedStore(folder, SHAPE) as store:
        async with using(client(store.path, region, threads)) as one:
            session = await session_of(one)
            assert one.state is StoreState.CONNECTED
            assert store.hellos == [hello(region)]
            await copied_out(session, store, region)
            assert (await session.locate(Locate(tenant=b"", keys=(KEY,), wait_s=1.0))).blocks == ()
        await until(lambda: not store.callers)


def test_it_works_on_the_servers_loop(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    uvloop.run(test_a_worker_introduces_itself_and_reads_the_stores_memory(folder, region, threads))


async def test_the_store_may_come_later_die_and_come_again(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    """LMCache 2143: after a restart of the master stale segments slowed the whole fleet down."""
    before = mapped()
    async with using(client(folder / "store.sock", region, threads)) as one:
        await until(lambda: "no socket is there" in one.problem)
        assert (one.session(), one.state) == (None, StoreState.ABSENT)
        for _ in range(3):
            async with ScriptedStore(folder, SHAPE) as store:
                await copied_out(await session_of(one), store, region)
                # The worker's region, the store's, the store's map of it and the worker's of that.
                assert mapped() <= before + 3
            await until(lambda: one.session() is None)
            del store
    await until(lambda: mapped() == before)


async def test_nothing_is_left_open(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    before = open_descriptors()
    for _ in range(5):
        async with ScriptedStore(folder, SHAPE) as store:
            async with using(client(store.path, region, threads)) as one:
                await session_of(one)
            await until(lambda: not store.callers)
    await until(lambda: open_descriptors() <= before)


async def test_a_refusal_says_why_and_is_asked_again(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor, caplog
) -> None:
    async with ScriptedStore(folder, SHAPE) as store:
        store.refuse = StoreRefused(StoreRefusal.KV_SHAPE, "pages of the workers here are others")
        async with using(client(store.path, region, threads)) as one:
            await until(lambda: len(store.hellos) > 2)
            assert (one.session(), one.state) == (None, StoreState.REFUSED)
            assert one.problem == "pages of the workers here are others"
            store.refuse = None
            await session_of(one)
    (line,) = [line for line in caplog.messages if "can't be used" in line]
    assert line.endswith("pages of the workers here are others")


async def test_a_store_that_answers_no_hello_holds_nobody_up(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor, monkeypatch
) -> None:
    monkeypatch.setattr(store_client, "HELLO_TIMEOUT_S", 0.05)
    before = open_descriptors()
    async with ScriptedStore(folder, SHAPE) as store:
        store.welcome = None
        async with using(client(store.path, region, threads)) as one:
            await until(lambda: len(store.hellos) > 2)
            assert one.session() is None
            assert one.problem == "it said no welcome within 0.05 s"
            store.welcome = store.say_welcome
            await session_of(one)
    await until(lambda: open_descriptors() <= before)


async def settles(one: StoreClient) -> bool:
    """Whether nobody has to wait now."""
    try:
        await asyncio.wait_for(one.settled(), 0.05)
    except TimeoutError:
        return False
    return True


async def test_who_needs_the_store_waits_until_the_first_attempt_has_ended(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    async with ScriptedStore(folder, SHAPE) as store:
        store.welcome = None
        async with using(client(store.path, region, threads)) as one:
            assert not await settles(one)
            store.answer_hellos()
            await one.settled()
            assert one.session() is not None


async def test_nobody_waits_for_a_store_that_is_away_or_refuses(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    async with using(client(folder / "store.sock", region, threads)) as one:
        await one.settled()
        assert "no socket is there" in one.problem
        assert await settles(one)
        async with ScriptedStore(folder, SHAPE) as store:
            store.refuse = StoreRefused(StoreRefusal.MODEL, "another model is here")
            await until(lambda: one.state is StoreState.REFUSED)
            assert await settles(one)


async def test_nobody_waits_long_for_a_store_that_answers_no_hello(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor, monkeypatch
) -> None:
    monkeypatch.setattr(store_client, "SETTLING_S", 0.2)
    async with ScriptedStore(folder, SHAPE) as store:
        store.welcome = None
        async with using(client(store.path, region, threads)) as one:
            assert not await settles(one)
            await asyncio.wait_for(one.settled(), 30)
            assert one.session() is None and len(store.hellos) == 1
            assert await settles(one)


async def test_a_new_life_is_waited_for_like_the_first(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    life = "w0-1"
    async with (
        ScriptedStore(folder, SHAPE) as store,
        using(client(store.path, region, threads, hello=lambda: hello(region, life))) as one,
    ):
        first = await session_of(one)
        assert await settles(one)
        life = "w0-2"
        one.new_life()
        await one.settled()
        assert one.session() not in (None, first)


def _other_shape(store: ScriptedStore, connection) -> None:
    kv = replace(store.shape, layout="other")
    welcome = StoreWelcome(store=Incarnation("s"), kv=kv, lease_ttl_s=5.0)
    connection.send(encode(Kind.STORE_WELCOME, welcome))


def _no_region(store: ScriptedStore, connection) -> None:
    nothing = os.memfd_create("test")
    store.say_welcome(connection, fds=[nothing])
    os.close(nothing)


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        (lambda store, connection: store.say_welcome(connection, fds=[]), "0 descriptors"),
        (
            lambda store, connection: store.say_welcome(connection, fds=[store.region.fd] * 2),
            "2 descriptors",
        ),
        (
            lambda store, connection: store.say_welcome(connection, fds=[store.region.fd] * 9),
            "more descriptors came than may",
        ),
        (_other_shape, "its pages are"),
        (_no_region, "no KV region|not sealed|has no header"),
        (lambda store, connection: connection.send(b"HTTP/1.1 400 Bad"), "version"),
        (lambda store, connection: connection.send(encode(Kind.HEARTBEAT, None)), "kind 4"),
        (lambda store, connection: connection.close(), "went away"),
    ],
    ids=["none", "two", "many", "shape", "no region", "garbage", "early", "gone"],
)
async def test_whatever_is_said_instead_of_a_welcome_makes_no_session(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor, say, problem: str
) -> None:
    """LMCache 4463: the layout had changed, and the connector copied on."""
    before = open_descriptors()
    async with ScriptedStore(folder, SHAPE) as store:
        store.welcome, store.beat = partial(say, store), None
        async with using(client(store.path, region, threads)) as one:
            await until(lambda: re.search(problem, one.problem) is not None)
            assert one.session() is None
    await until(lambda: open_descriptors() <= before)


async def test_a_new_life_of_the_worker_is_said_anew(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    life = "w0-1"
    async with ScriptedStore(folder, SHAPE) as store:
        one = client(store.path, region, threads, hello=lambda: hello(region, life))
        async with using(one):
            first = await session_of(one)
            life = "w0-2"
            one.new_life()
            assert one.session() is None and not first.alive
            await session_of(one)
    assert [said.incarnation for said in store.hellos] == ["w0-1", "w0-2"]


async def test_a_new_life_that_begins_during_the_hello_is_said_too(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    life = "w0-1"
    async with ScriptedStore(folder, SHAPE) as store:
        one = client(store.path, region, threads, hello=lambda: hello(region, life))

        def welcome(connection) -> None:
            nonlocal life
            life = "w0-2"
            one.new_life()
            store.say_welcome(connection)

        store.welcome = welcome
        async with using(one):
            await session_of(one)
    assert [said.incarnation for said in store.hellos] == ["w0-1", "w0-2"]


async def test_a_broken_law_is_not_kept_silent(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    def broken() -> StoreHello:
        raise BugError("for a test")

    heard: list[BugError] = []
    guard_loop(heard.append)
    async with using(client(folder / "store.sock", region, threads, hello=broken)):
        await until(lambda: bool(heard))
    assert str(heard[0]) == "for a test"


@pytest.mark.parametrize("kind", [Kind.KV_EVENTS, Kind.STORE_ANSWER, Kind.STORE_WELCOME])
async def test_what_no_worker_asks_for_ends_the_stream(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor, kind: Kind
) -> None:
    async with (
        ScriptedStore(folder, SHAPE) as store,
        using(client(store.path, region, threads)) as one,
    ):
        session = await session_of(one)
        store.callers[0].stream.send_frame(pack_frame(Frame(kind, 0, b"\xc0")))
        await until(lambda: not session.alive)
        await session_of(one)


async def test_a_store_that_stands_still_is_given_up(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    """Mooncake 1088: stalls of 60 s. Whoever asks then is told at once."""
    async with ScriptedStore(folder, SHAPE) as store:
        store.beat = None
        async with using(client(store.path, region, threads, lost_after_s=0.3)) as one:
            session = await session_of(one)
            store.welcome = None
            await until(lambda: one.session() is None)
            with pytest.raises(PeerError):
                await session.locate(Locate(tenant=b"", keys=(KEY,), wait_s=1.0))


class Slow(MappedRegion):
    """A memory so large that mapping it takes until it is let."""

    begun, let = threading.Event(), threading.Event()

    def __init__(self, fd: int, own: OwnedRegion) -> None:
        self.begun.set()
        assert self.let.wait(30)
        super().__init__(fd, own)


async def test_who_leaves_while_memory_is_mapped_leaves_nothing(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor, monkeypatch
) -> None:
    monkeypatch.setattr(store_client, "MappedRegion", Slow)
    before, open_before = mapped(), open_descriptors()
    async with ScriptedStore(folder, SHAPE) as store:
        one = client(store.path, region, threads)
        one.start()
        await until(Slow.begun.is_set)
        assert one.session() is None
        await one.close()
        Slow.let.set()
    del store
    await until(lambda: mapped() == before and open_descriptors() <= open_before)


async def test_an_absent_store_is_hardly_mentioned(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(store_client, "_LONGEST_WAIT_S", 0.04)
    tried = 0

    def said() -> StoreHello:
        nonlocal tried
        tried += 1
        return hello(region)

    async with using(client(folder / "store.sock", region, threads, hello=said)) as one:
        await until(lambda: tried == 8)
        assert "no socket is there" in one.problem
    lines = [line for line in caplog.messages if "can't be used" in line]
    assert len(lines) == 1


async def test_copies_that_were_asked_for_end_before_memory_goes(
    folder: Path, region: OwnedRegion, threads: ThreadPoolExecutor
) -> None:
    async with ScriptedStore(folder, SHAPE) as store:
        block = store.keep(KEY, os.urandom(4 * SHAPE.page_bytes))
        pulls = [PagePull(source, number) for number, source in enumerate(block)]
        gate = threading.Event()
        async with using(client(store.path, region, threads)) as one:
            session = await session_of(one)
            threads.submit(gate.wait, 30)
            copying = session.copy(pulls, lambda: False)
        gate.set()
        assert (await asyncio.wrap_future(copying)).good == (True,) * 4
        late = await asyncio.wrap_future(session.copy(pulls, lambda: False))
        assert late.good == (False,) * 4
