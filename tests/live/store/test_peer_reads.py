"""What reads teach of a peer: how fast it sends, whole blocks or not; what is no fault of its."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from antiphon.core.store_pool import RAW, LevelBook, LevelGuess, Sender, Sources
from antiphon.core.store_pool.peer_address import PeerAddress
from antiphon.live.store.pool.answer_time import AnswerTime
from antiphon.live.store.pool.encoded_pages import PAGE_BYTES, EncodedInbox
from antiphon.live.store.pool.encoded_pull import EncodedPull
from antiphon.live.store.pool.peer_reads import PeerReads
from antiphon.live.store.pool.pool_link import ReadCounts
from antiphon.types import BlockKey, LeaseId, LentBlock, PagePull, PoolLent, StoreName

PEER = StoreName("b")
PAGES, PAGE = 4, 1 << 20
SLOT = PAGES * PAGE
LEVELS = [
    LevelGuess(name=RAW, rank=0, block_bytes=SLOT, encode_s=0, decode_s=0),
    LevelGuess(name="int8", rank=1, block_bytes=SLOT / 64, encode_s=0, decode_s=0),
]
ANSWER_S = 0.25


def key_of(number: int) -> BlockKey:
    return cast("BlockKey", number.to_bytes(32, "big"))


def pages(count: int) -> tuple[Any, ...]:
    return tuple(SimpleNamespace(checksum=number) for number in range(count))


@dataclass
class Peer:
    """A link, a client and memory, at `bytes_per_s`. It lends the first `lends` of what is asked,
    which takes it a while; time goes by as it says."""

    bytes_per_s: float
    lends: int = 64
    encoded: int = 0
    now: float = 0.0
    slot_pages: int = PAGES
    slot_bytes: int = SLOT
    address: PeerAddress = field(default_factory=lambda: PeerAddress(PEER, "127.0.0.1", 7420))
    read_counts: ReadCounts = field(default_factory=ReadCounts)
    timeouts: list[float] = field(default_factory=list[float])
    asked: list[int] = field(default_factory=list[int])
    """Blocks of each call."""

    def __post_init__(self) -> None:
        self.read = self.read_counts
        self.region = SimpleNamespace(seal=lambda targets: pages(len(targets)))

    async def borrow(self, blocks: dict[BlockKey, int], *_: object, **__: object) -> PoolLent:
        self.now += ANSWER_S
        self.asked.append(len(blocks))
        lent = tuple(
            LentBlock(
                key=key,
                pages=pages(1 if self.encoded else PAGES),
                encoded_bytes=self.encoded,
            )
            for key in list(blocks)[: self.lends]
        )
        return PoolLent(lease=LeaseId("7"), ttl_s=9.0, blocks=lent)

    def release(self, lease: LeaseId) -> None: ...

    def pull(self, pulls: Sequence[PagePull], timeout_s: float) -> tuple[bool, ...]:
        self.timeouts.append(timeout_s)
        took_s = min(timeout_s, len(pulls) * PAGE / self.bytes_per_s)
        self.now += took_s
        good = round(took_s * self.bytes_per_s) // PAGE
        return tuple(at < good for at in range(len(pulls)))


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def reads_of(
    peer: Peer, sources: Sources, threads: Executor, encoded: EncodedPull | None = None
) -> PeerReads:
    return PeerReads(
        cast("Any", peer),
        cast("Any", peer),
        cast("Any", peer),
        sources,
        LevelBook("int8", LEVELS, block_tokens=1),
        encoded,
        threads=threads,
        spawn=asyncio.create_task,
        clock=lambda: peer.now,
    )


async def read(
    reads: PeerReads, peer: Peer, blocks: int, left_s: float, level: str = RAW
) -> list[bool]:
    """Which came."""
    due = peer.now + left_s
    wanted = (reads.read(key_of(at), cast("Any", at), due, level) for at in range(blocks))
    return [one is not None for one in await asyncio.gather(*wanted)]


async def test_a_block_that_is_late_teaches_how_fast_its_peer_is(threads: Executor) -> None:
    """4 MiB within 2 s at 3 MiB/s, which was taken for 10 Gbit/s: the first read has not the time,
    all later ones have."""
    peer, sources = Peer(3 * PAGE), Sources(1.25e9)
    reads = reads_of(peer, sources, threads)
    assert await read(reads, peer, 1, 2.0) == [False]
    speed = reads.bytes_per_s()
    assert speed == pytest.approx(sources.bytes_per_s(PEER))
    assert speed == pytest.approx(2 * PAGE, rel=0.5)
    assert await read(reads, peer, 1, 2.0) == [True]
    assert not sources.rests(PEER, peer.now)


async def test_speed_is_of_what_came_and_of_its_own_time(threads: Executor) -> None:
    """64 are asked, 2 lent; and the time until the answer moves nothing."""
    peer, sources = Peer(8 * PAGE, lends=2), Sources(1.25e9)
    reads = reads_of(peer, sources, threads)
    assert sum(await read(reads, peer, 64, 20.0)) == 2
    assert sources.bytes_per_s(PEER) == pytest.approx(8 * PAGE)
    assert sources.waiting_bytes(PEER) == 0


async def test_what_is_lent_as_it_is_has_the_time_that_it_needs(threads: Executor) -> None:
    """Asked for encoded, of a peer that then sends 64 times as much."""
    peer, sources = Peer(PAGE), Sources(1.25e9)
    sources.came(PEER, PAGE, 1.0)
    encoded = cast("Any", SimpleNamespace())
    reads = reads_of(peer, sources, threads, encoded)
    assert await read(reads, peer, 1, 20.0, "int8") == [True]
    assert peer.timeouts[0] >= SLOT / PAGE


async def test_encoded_blocks_are_asked_for_a_few_at_a_time(threads: Executor) -> None:
    """Else none would be decoded before the last one has come."""
    peer, sources = Peer(64 * PAGE), Sources(1.25e9)
    reads = reads_of(peer, sources, threads, cast("Any", SimpleNamespace()))
    assert all(await read(reads, peer, 20, 20.0, "int8"))
    assert peer.asked == [8, 8, 4]
    assert all(await read(reads, peer, 20, 20.0))
    assert peer.asked[3:] == [20]


async def test_what_waits_for_a_thread_that_decodes_moves_nothing() -> None:
    """Else who decodes slowly would take its peers for slow, and have them encode more."""
    peer, sources = Peer(64 * PAGE, encoded=PAGE_BYTES), Sources(1.25e9)

    def decode(*_: object) -> bool:
        peer.now += 0.05
        return True

    memory = SimpleNamespace(
        block=lambda slot: None, fill=lambda slot, write: pages(PAGES) if write(None) else None
    )
    book = LevelBook("int8", LEVELS, block_tokens=1)
    coder = SimpleNamespace(decode=decode)
    inbox = EncodedInbox(SLOT)
    encoded = EncodedPull(cast("Any", peer), inbox, cast("Any", coder), book, cast("Any", memory))
    with ThreadPoolExecutor(1) as one:
        reads = reads_of(peer, sources, one, encoded)
        assert all(await read(reads, peer, 16, 20.0, "int8"))
    assert peer.asked == [8, 8]
    assert reads.bytes_per_s() == pytest.approx(64 * PAGE_BYTES)


async def test_a_full_inbox_is_not_the_peers_fault(threads: Executor) -> None:
    peer, sources = Peer(PAGE, encoded=PAGE_BYTES), Sources(1.25e9)
    inbox = EncodedInbox(PAGE_BYTES)
    taken = await inbox.take(inbox.region.shape.pages)
    encoded = EncodedPull(cast("Any", peer), inbox, *cast("Any", (None, None, None)))
    reads = reads_of(peer, sources, threads, encoded)
    for _ in range(3):
        assert await read(reads, peer, 1, ANSWER_S + 0.01, "int8") == [False]
    assert peer.timeouts == []
    assert not sources.rests(PEER, peer.now)
    assert (peer.read.failed, sources.waiting_bytes(PEER)) == (0, 0)
    inbox.give(taken)


async def test_the_inbox_serves_who_came_first() -> None:
    """However much that one wants."""
    inbox = EncodedInbox(PAGE_BYTES)
    count = inbox.region.shape.pages
    taken = await inbox.take(count)
    order = list[str]()

    async def take(name: str, pages: int) -> None:
        got = await inbox.take(pages)
        order.append(name)
        inbox.give(got)

    large = asyncio.create_task(take("large", count))
    small = asyncio.create_task(take("small", 1))
    await asyncio.sleep(0)
    inbox.give(taken[:1])
    await asyncio.sleep(0)
    inbox.give(taken[1:])
    await asyncio.gather(large, small)
    assert order == ["large", "small"]


async def test_a_speed_is_old_a_while_after_the_last_pull(threads: Executor) -> None:
    peer, sources = Peer(8 * PAGE), Sources(1.25e9)
    reads = reads_of(peer, sources, threads)
    for _ in range(2):
        assert await read(reads, peer, 1, 20.0) == [True]
        speed = reads.bytes_per_s()
        peer.now += 59.0
        assert not reads.sender().old
        peer.now += 2.0
        assert reads.sender().old
        assert reads.bytes_per_s() == speed == pytest.approx(8 * PAGE), "and known all the same"


async def test_a_sender_is_what_was_seen_of_it(threads: Executor) -> None:
    """Until then it is as slow as is likely: a hundredth of what is configured, then as the slowest
    other one, then as it was in an earlier life."""
    peer, sources = Peer(8 * PAGE), Sources(1.25e9)
    reads = reads_of(peer, sources, threads)
    assert reads.sender() == Sender(name=PEER, bytes_per_s=1.25e7, measured=False)
    for other, speed in (("c", 4e7), ("d", 3e7), ("e", 5e7)):
        sources.came(StoreName(other), int(speed), 1.0)
    assert reads.sender() == Sender(name=PEER, bytes_per_s=3e7, measured=False)
    assert await read(reads, peer, 1, 20.0) == [True]
    seen = reads.sender()
    assert (seen.measured, seen.bytes_per_s) == (True, pytest.approx(8 * PAGE))
    assert seen.answer_s == pytest.approx(ANSWER_S)
    sources.forget(PEER)
    again = reads_of(peer, sources, threads).sender()
    assert (again.measured, again.bytes_per_s) == (False, pytest.approx(8 * PAGE))
    assert again.answer_s == 0.0


def test_the_least_of_the_latest_answers_that_nothing_was_encoded_for() -> None:
    answers = AnswerTime()
    answers.answered(9.0, 3)
    assert answers.least_s() == 0.0, "none is known"
    for took_s in (0.02, 0.5, 0.3):
        answers.answered(took_s, 0)
    answers.answered(0.001, 1)
    assert answers.least_s() == 0.02
    for _ in range(8):
        answers.answered(0.2, 0)
    assert answers.least_s() == 0.2, "the way has become a longer one"
