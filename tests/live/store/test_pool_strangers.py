"""What another store of a pool may say, and who may be one: nothing that it says harms this one."""

import asyncio
import os
import socket
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Any, cast

import pytest
from pool_kit import free_ports, pool_table, pooled
from store_callers import IDENTITY, SHAPE, FakeWorker, contents, until
from store_kit import served

from antiphon.core.store_pool import RAW, LevelBook, LevelGuess, Placing, Sources
from antiphon.core.store_pool.peer_address import PeerAddress
from antiphon.errors import PeerError, UsageError
from antiphon.live import socket_folder
from antiphon.live.store.pool import home_moves
from antiphon.live.store.pool.home_moves import HomeMoves
from antiphon.live.store.pool.peer_reads import PeerReads
from antiphon.live.store.pool.pool_dial import dial_by, pool_socket
from antiphon.live.store.pool.pool_link import PoolLink, ReadCounts
from antiphon.live.store.pool.pool_session import MOST_READS, PoolSession
from antiphon.types import (
    STORE,
    BlockKey,
    ClusterConfig,
    DataAccess,
    Incarnation,
    LeaseId,
    LentBlock,
    PlacedBlock,
    PoolClear,
    PoolHello,
    PoolLent,
    PoolRead,
    PoolWelcome,
    Release,
    StoreAnswer,
    StoreName,
)
from antiphon.wire import (
    FROM_STRANGE_STORES,
    TO_POOLED_STORE,
    Ending,
    Frame,
    FrameReader,
    FrameStream,
    Kind,
    decode,
    encode,
)

GOOD = DataAccess(endpoints=("tcp://127.0.0.1:9",), key_id=bytes(16), key=bytes(32))
KEY = cast("BlockKey", bytes(32))
NO_LEVEL = LevelGuess(name=RAW, rank=0, block_bytes=0, encode_s=0, decode_s=0)


@dataclass
class OddPeer:
    """A store called b, which says what a test wants."""

    port: int
    heard: list[tuple[object, int]]
    ends: list[str]
    streams: list[FrameStream]


@asynccontextmanager
async def odd_peer(port: int, data: DataAccess, **said: Any) -> AsyncIterator[OddPeer]:
    """It welcomes whoever comes with `data`."""
    peer = OddPeer(port, [], [], [])

    def come() -> FrameStream:
        stream = FrameStream(FROM_STRANGE_STORES, clock=time.monotonic)
        stream.on_frame = lambda frame: hears(stream, frame)
        stream.on_end = ended
        return stream

    def ended(ending: Ending) -> None:
        peer.ends.append(ending.reason)

    def hears(stream: FrameStream, frame: Frame) -> None:
        message = decode(frame)
        if isinstance(message, PoolHello):
            stream.widen(TO_POOLED_STORE)
            welcome = PoolWelcome(
                name=StoreName("b"),
                incarnation=Incarnation("1"),
                blocks=8,
                kv=SHAPE,
                data=data,
                known=said.get("known", ()),
            )
            peer.streams.append(stream)
            stream.send(Kind.POOL_WELCOME, welcome)
        elif message is not None:
            peer.heard.append((message, frame.number))

    path = pool_socket(port)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(come, sock=socket_folder.listen(path))
    try:
        yield peer
    finally:
        server.close()
        for stream in peer.streams:
            stream.end("the test is over")


# ── who may be one ───────────────────────────────────────────────────────────────────────────────


async def test_without_keys_no_port_is_open_and_no_other_user_comes_in(folder: Path) -> None:
    async with pooled(folder, "a") as (a,):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", a.port)) != 0
        path = pool_socket(a.port)
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.parent.stat().st_uid == os.geteuid()
    assert not path.exists()


async def test_a_store_without_keys_calls_none_on_another_host() -> None:
    stream = FrameStream({}, clock=time.monotonic)
    with pytest.raises(UsageError, match=r"network\.keys"):
        await dial_by(None)(stream, PeerAddress(StoreName("b"), "10.0.0.2", 7420), 1.0)


# ── what it may say ──────────────────────────────────────────────────────────────────────────────

ODD = {
    "many": replace(GOOD, endpoints=tuple(f"tcp://127.0.0.1:{1024 + n}" for n in range(400))),
    "none": replace(GOOD, endpoints=()),
    "no key": replace(GOOD, key=b""),
    "no key's name": replace(GOOD, key_id=b""),
    "no endpoint": replace(GOOD, endpoints=("127.0.0.1",)),
    "another host": replace(GOOD, endpoints=("tcp://10.0.0.2:7420",)),
}


@pytest.mark.parametrize("odd", ODD)
async def test_a_welcome_that_opens_nothing_is_no_welcome(folder: Path, odd: str) -> None:
    mine, theirs = free_ports(2)
    table = pool_table("a", mine, [("b", theirs)])
    async with (
        odd_peer(theirs, ODD[odd]) as peer,
        served(folder, pool=table) as path,
        FakeWorker(path) as worker,
    ):
        await until(lambda: len(peer.ends) > 0)
        keys = await worker.put_prompt(blocks=2)
        assert await worker.fetch(keys) == contents(keys)


# ── what it lends ────────────────────────────────────────────────────────────────────────────────


@dataclass
class SlotsOf:
    slot_pages: int
    slot_bytes: int = 1024


class LinkOf:
    """Answers every read so."""

    def __init__(self, answer: PoolLent) -> None:
        self.address = PeerAddress(StoreName("b"), "127.0.0.1", 7420)
        self.answer = answer
        self.released: list[LeaseId] = []
        self.read = ReadCounts()

    async def borrow(self, *_: object, **__: object) -> PoolLent:
        return self.answer

    def release(self, lease: LeaseId) -> None:
        self.released.append(lease)


def _lent(pages: tuple[Any, ...], key: BlockKey = KEY) -> LentBlock:
    return LentBlock(key=key, pages=pages)


@pytest.mark.parametrize(
    "blocks",
    [(), (_lent((), KEY),), (_lent((), cast("BlockKey", bytes(31) + b"x")),)],
    ids=["nothing", "of no pages", "what nobody asked for"],
)
async def test_a_lease_is_given_back_whatever_it_was_for(blocks: tuple[LentBlock, ...]) -> None:
    link = LinkOf(PoolLent(lease=LeaseId("7"), ttl_s=1.0, blocks=blocks))
    reads = PeerReads(
        cast("Any", link),
        cast("Any", None),
        cast("Any", SlotsOf(1)),
        Sources(1e9),
        LevelBook(RAW, [NO_LEVEL], block_tokens=1),
        threads=cast("Any", None),
        spawn=asyncio.create_task,
        clock=time.monotonic,
    )
    assert await reads.read(KEY, cast("Any", 0), time.monotonic() + 5.0) is None
    assert link.released == [LeaseId("7")]


ODD_CODING = [(inf, 1), (-inf, 1), (nan, 1), (-1.0, 1), (1e12, 1), (0.0, -1), (0.0, 2)]


@pytest.mark.parametrize(("encode_s", "encoded"), ODD_CODING)
async def test_what_a_peer_says_of_encoding_has_to_be_possible(
    encode_s: float, encoded: int
) -> None:
    """Or all else that it says counts for nothing."""
    lent = PoolLent(
        lease=LeaseId("7"),
        ttl_s=1.0,
        blocks=(_lent((cast("Any", None),)),),
        encode_s=encode_s,
        encoded=encoded,
    )
    link, sources = LinkOf(lent), Sources(1e9)
    reads = PeerReads(
        cast("Any", link),
        cast("Any", None),
        cast("Any", SlotsOf(1)),
        sources,
        LevelBook(RAW, [NO_LEVEL], block_tokens=1),
        threads=cast("Any", None),
        spawn=asyncio.create_task,
        clock=time.monotonic,
    )
    assert await reads.read(KEY, cast("Any", 0), time.monotonic() + 5.0) is None
    assert link.released == [LeaseId("7")]
    assert (link.read.failed, sources.waiting_bytes(StoreName("b"))) == (1, 0)


class Hears:
    """What a link tells: nothing here."""

    def hello(self) -> PoolHello:
        return PoolHello(
            name=StoreName("a"),
            incarnation=Incarnation("1"),
            identity=IDENTITY,
            kv=SHAPE,
            blocks=8,
            address="a@127.0.0.1:7420",
        )

    def came(self, *_: object) -> None: ...

    def news(self, *_: object) -> None: ...

    def left(self, *_: object) -> None: ...


@pytest.mark.parametrize("cancelled", [False, True], ids=["late", "cancelled"])
async def test_what_is_lent_when_nobody_waits_is_given_back(cancelled: bool) -> None:
    [port] = free_ports(1)
    async with odd_peer(port, GOOD) as peer:
        at = PeerAddress(StoreName("b"), "127.0.0.1", port)
        link = PoolLink(
            at, cast("Any", Hears()), dial_by(None), ClusterConfig(), clock=time.monotonic
        )
        running = asyncio.create_task(link.run())
        await until(lambda: link.present)
        borrowing = asyncio.create_task(link.borrow({KEY: 0}, 0.0, 20.0 if cancelled else 0.05))
        await until(lambda: len(peer.heard) == 1)
        if cancelled:
            borrowing.cancel()
        with pytest.raises((PeerError, asyncio.CancelledError)):
            await borrowing
        [(read, number)] = peer.heard
        assert isinstance(read, PoolRead)
        lent = PoolLent(lease=LeaseId("7"), ttl_s=9.0, blocks=())
        peer.streams[0].send(Kind.POOL_LENT, lent, number)
        await until(lambda: len(peer.heard) == 2)
        assert peer.heard[1][0] == Release(owner=STORE, lease=LeaseId("7"))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# ── what it asks, and does not read ──────────────────────────────────────────────────────────────


class Said:
    """A stream's sending side."""

    def __init__(self) -> None:
        self.answers: list[tuple[Kind, object, int]] = []

    def send(self, kind: Kind, message: object, number: int) -> None:
        self.answers.append((kind, message, number))


async def test_clears_of_one_store_that_wait_are_bounded() -> None:
    begun, go = [], asyncio.Event()

    class Slow:
        async def clear(self, *_: object) -> tuple[int, bool]:
            begun.append(1)
            await go.wait()
            return 0, True

    said = Said()
    session = PoolSession(
        StoreName("b"),
        "holder",
        cast("Any", Slow()),
        cast("Any", None),
        lease_ttl_s=1.0,
        placed=lambda *_: None,
        spawn=asyncio.create_task,
        on_over=lambda _: None,
    )
    most = MOST_READS + 36
    reader = FrameReader(TO_POOLED_STORE)
    clear = PoolClear(tenant=None, keys=None)
    for number in range(1, most + 1):
        for frame in reader.feed(encode(Kind.POOL_CLEAR, clear, number)):
            session.heard(cast("Any", said), frame)
    await until(lambda: len(begun) == MOST_READS)
    assert [number for *_, number in said.answers] == list(range(MOST_READS + 1, most + 1))
    for _, answer, _ in said.answers:
        assert isinstance(answer, StoreAnswer)
        assert answer.problem
    go.set()
    await until(lambda: len(said.answers) == most)


async def test_a_home_that_does_not_read_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, list[PlacedBlock]] = {"deaf": [], "good": []}

    class Link:
        def __init__(self, name: str) -> None:
            self.name = name

        async def place(self, blocks: list[PlacedBlock]) -> None:
            if self.name == "deaf":
                await asyncio.Event().wait()
            told[self.name] += blocks

    placed = lambda _self, key: PlacedBlock(  # noqa: E731
        key=key, parent=None, position=0, tenant=b"", numerics=""
    )
    monkeypatch.setattr(HomeMoves, "_placed", placed)
    monkeypatch.setattr(home_moves, "_TELL_S", 0.05)
    placing = Placing()
    moves = HomeMoves(placing, cast("Any", Link))
    for number in range(600):
        key = cast("BlockKey", number.to_bytes(32, "big"))
        placing.offer(key, StoreName("deaf" if number % 2 else "good"))
    moves.look()
    running = asyncio.create_task(moves.place())
    await until(lambda: len(told["good"]) == 300)
    await until(lambda: len(placing) == 0)  # what waits for the other one is let go
    assert not told["deaf"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
