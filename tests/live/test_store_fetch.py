"""Fetches from a store that answers well, late, wrong, or not at all."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from link_kit import turns, until
from scripted_store import ScriptedStore, client, open_descriptors

from antiphon.core.tiers import LOCATE_SHARE
from antiphon.live import store_fetch, store_session
from antiphon.live.store_fetch import FetchEnded, LayerGroups, NotFetched, StoreFetch
from antiphon.store.transfer import Miss, OwnedRegion
from antiphon.types import Fetch, KvShape, LeaseId, Located, OfferedPage, RequestId

pytestmark = pytest.mark.timeout(60)
SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=4096, pages=256)
BLOCKS = 6
R = RequestId("r")


@pytest.fixture(autouse=True)
def on_the_thread(monkeypatch) -> None:
    """Blocks of the tests are small: copies would be made where they are asked for."""
    monkeypatch.setattr(store_fetch, "SHORT_COPY_S", 0.0)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def fetch(name: str = "r", *, blocks: int = BLOCKS, first: int = 0, attempt: int = 1) -> Fetch:
    """Blocks 0, 1, … to pages from 4 * `first` on."""
    return Fetch(
        request=RequestId(name),
        attempt=attempt,
        keys=tuple(map(key, range(blocks))),
        targets=tuple(tuple(range(4 * at, 4 * at + 4)) for at in range(first, first + blocks)),
        tenant=b"t",
    )


class Side:
    """A worker's memory, and its fetches from a store that has blocks 0 … 5."""

    def __init__(self, folder: Path, timeout_s: float, layers: LayerGroups | None = None) -> None:
        folder.chmod(0o700)
        self.store = ScriptedStore(folder, SHAPE)
        self.contents = [os.urandom(4 * SHAPE.page_bytes) for _ in range(BLOCKS)]
        for number, content in enumerate(self.contents):
            self.store.keep(key(number), content)
        self.region = OwnedRegion(SHAPE)
        self.threads = ThreadPoolExecutor(1)
        self.client = client(self.store.path, self.region, self.threads)
        self.ended: list[FetchEnded] = []
        self.broken: list[BaseException] = []
        self.when_ended: Callable[[FetchEnded], None] = lambda _: None
        self.fetches = StoreFetch(
            self.client.session,
            self.client.settled,
            timeout_s=timeout_s,
            clock=time.monotonic,
            on_end=self._end,
            on_broken=self.broken.append,
            layers=layers,
        )

    def _end(self, ended: FetchEnded) -> None:
        self.ended.append(ended)
        self.when_ended(ended)

    def block(self, number: int) -> bytes:
        pages = self.region.content.reshape(SHAPE.pages, -1)
        return pages[4 * number : 4 * number + 4].tobytes()

    async def run(self, one: Fetch) -> FetchEnded:
        before = len(self.ended)
        self.fetches.begin(one)
        await until(lambda: len(self.ended) > before)
        return self.ended[-1]

    def answering(self, change: Callable[[Located], Located]) -> None:
        self.store.answer = lambda locate: change(self.store.located(locate))

    def answering_block(self, number: int, change: Callable[[OfferedPage], OfferedPage]) -> None:
        """One page of one block is said otherwise than it is."""

        def changed(located: Located) -> Located:
            blocks = list(located.blocks)
            first, *rest = blocks[number]
            blocks[number] = (change(first), *rest)
            return replace(located, blocks=tuple(blocks))

        self.answering(changed)


@asynccontextmanager
async def sides(
    folder: Path, timeout_s: float = 20.0, layers: LayerGroups | None = None
) -> AsyncIterator[Side]:
    """Law: whatever happened, nothing is left."""
    side = Side(folder, timeout_s, layers)
    before = open_descriptors()
    async with side.store:
        side.client.start()
        await until(lambda: side.client.session() is not None)
        yield side
        await side.fetches.close()
        assert side.broken == [] and not side.fetches._tasks
        await side.client.close()
        side.threads.shutdown()
        side.region.close()
        await until(lambda: not side.store.callers)
    await until(lambda: open_descriptors() <= before)
    assert not [task for task in asyncio.all_tasks() if task.get_name() in ("fetch", "locate")]


async def test_what_the_store_has_comes_into_the_pages_that_wait(tmp_path: Path) -> None:
    async with sides(tmp_path) as side:
        ended = await side.run(fetch(first=7))
        assert ended == FetchEnded(
            request=R, attempt=1, good=(True,) * BLOCKS, problem="", seconds=ended.seconds
        )
        assert 0 < ended.seconds < 20
        assert [side.block(7 + number) for number in range(BLOCKS)] == side.contents
        (asked,) = side.store.asked
        assert (asked.tenant, asked.keys) == (b"t", fetch().keys)
        assert asked.wait_s == LOCATE_SHARE * 20.0
        assert 0 < asked.wait_s < 20.0, "there must be time left to copy"
        await until(lambda: side.store.released == [LeaseId("lease-1")])
        assert not side.fetches.missed


@pytest.mark.parametrize("had", [0, 1, 5])
async def test_what_it_has_not_got_is_missing(tmp_path: Path, had: int) -> None:
    """LMCache 3388: blocks that did not come were used as if they had."""
    async with sides(tmp_path) as side:
        for number in range(had, BLOCKS):
            del side.store.kept[key(number)]
        ended = await side.run(fetch())
        assert ended.good == (True,) * had + (False,) * (BLOCKS - had)
        assert ended.problem == f"the KV store has {had} of {BLOCKS} blocks"
        assert side.fetches.missed == {NotFetched.GONE: BLOCKS - had}
        await until(lambda: len(side.store.released) == min(had, 1))


@pytest.mark.parametrize("bad", [0, 3, 5])
@pytest.mark.parametrize(
    ("change", "miss"),
    [
        (lambda page: replace(page, checksum=page.checksum ^ 1), Miss.CORRUPT),
        (lambda page: replace(page, generation=page.generation + 2), Miss.STALE),
        (lambda page: replace(page, generation=page.generation + 1), Miss.IMPOSSIBLE),
        (lambda page: replace(page, page=10**6), Miss.IMPOSSIBLE),
        (lambda page: replace(page, page=-1), Miss.IMPOSSIBLE),
    ],
    ids=["checksum", "generation", "odd", "no page", "negative"],
)
async def test_a_page_that_is_not_what_was_said_ends_what_is_used(
    tmp_path: Path, change, miss: Miss, bad: int
) -> None:
    """LMCache 4385: the tier returned another request's KV, silently."""
    async with sides(tmp_path) as side:
        side.answering_block(bad, change)
        ended = await side.run(fetch())
        assert ended.good == (True,) * bad + (False,) * (BLOCKS - bad)
        assert ended.problem == f"pages were not what was offered: 1 {miss}"
        assert [side.block(number) for number in range(bad)] == side.contents[:bad]
        assert side.fetches.missed == {miss: BLOCKS - bad}
        await until(lambda: len(side.store.released) == 1)


async def test_a_block_that_is_replaced_meanwhile_is_not_used(tmp_path: Path) -> None:
    """Mooncake 850: a read outlived its lease and got what was there by then."""
    async with sides(tmp_path) as side:

        def replaced(located: Located) -> Located:
            side.store.region.begin_write([located.blocks[2][1].page])
            return located

        side.answering(replaced)
        ended = await side.run(fetch())
        assert ended.good == (True, True, False, False, False, False)
        assert side.fetches.missed == {Miss.STALE: 4}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda located: replace(located, blocks=(*located.blocks, located.blocks[0])),
            "found 7 of 6 blocks",
        ),
        (
            lambda located: replace(located, blocks=(located.blocks[0][:3],)),
            "has 3 pages of a block that has 4",
        ),
        (lambda located: replace(located, blocks=((),) * 6), "has 0 pages of a block that has 4"),
        (lambda located: replace(located, lease=None), "gave no lease"),
    ],
    ids=["too many", "short", "empty", "no lease"],
)
async def test_an_answer_to_something_else_is_none(tmp_path: Path, change, problem: str) -> None:
    async with sides(tmp_path) as side:
        side.answering(change)
        ended = await side.run(fetch())
        assert ended.good == (False,) * BLOCKS
        assert problem in ended.problem
        assert side.fetches.missed == {NotFetched.WRONG: BLOCKS}
        side.store.answer = side.store.located
        assert all((await side.run(fetch())).good), "it has not become useless by it"


async def test_without_a_store_it_ends_at_once(tmp_path: Path) -> None:
    async with sides(tmp_path) as side:
        await side.store.close()
        await until(lambda: side.client.session() is None)
        ended = await side.run(fetch())
        assert ended.good == (False,) * BLOCKS
        assert ended.problem == "the KV store is not there"
        assert side.fetches.missed == {NotFetched.ABSENT: BLOCKS}


async def test_a_fetch_that_comes_before_the_session_waits_for_it(tmp_path: Path) -> None:
    """The first request after a worker's restart was computed, though the store had its prompt."""
    async with sides(tmp_path) as side:
        side.store.welcome = None
        side.client.new_life()
        side.fetches.begin(fetch())
        await until(lambda: len(side.store.hellos) == 2)
        await turns()
        assert side.ended == [] and side.store.asked == []
        side.store.answer_hellos()
        await until(lambda: len(side.ended) == 1)
        assert side.ended[0].good == (True,) * BLOCKS


async def test_no_fetch_waits_for_a_store_that_was_away_a_moment_ago(tmp_path: Path) -> None:
    """Else each request would pay its whole deadline for a store that is gone."""
    async with sides(tmp_path, timeout_s=1000.0) as side:
        await side.store.close()
        await until(lambda: "no socket is there" in side.client.problem)
        for number in range(20):
            assert (await side.run(fetch(f"r{number}"))).problem == "the KV store is not there"


async def test_a_fetch_waits_for_no_session_beyond_its_own_time(tmp_path: Path) -> None:
    async with sides(tmp_path, timeout_s=0.1) as side:
        side.store.welcome = None
        side.client.new_life()
        ended = await side.run(fetch())
        assert ended.good == (False,) * BLOCKS and ended.seconds >= 0.1
        assert side.fetches.missed == {NotFetched.ABSENT: BLOCKS}


async def test_an_abort_ends_a_fetch_that_waits_for_a_session(tmp_path: Path) -> None:
    async with sides(tmp_path, timeout_s=1000.0) as side:
        side.store.welcome = None
        side.client.new_life()
        side.fetches.begin(fetch())
        await until(lambda: len(side.store.hellos) == 2)
        side.fetches.cancel(R, 1)
        await until(lambda: len(side.ended) == 1)
        assert side.fetches.missed == {NotFetched.ENDED: BLOCKS}


async def test_a_store_that_dies_meanwhile_ends_it_at_once(tmp_path: Path) -> None:
    """LMCache 1810: when the master was killed answers were garbled. A dead store is a miss."""
    async with sides(tmp_path, timeout_s=1000.0) as side:
        side.store.answer = lambda _: None
        side.fetches.begin(fetch())
        await until(lambda: len(side.store.asked) == 1)
        await side.store.close()
        await until(lambda: len(side.ended) == 1)
        assert side.ended[0].good == (False,) * BLOCKS
        assert side.fetches.missed == {NotFetched.ABSENT: BLOCKS}


async def test_memory_of_a_store_that_has_just_died_can_still_be_copied(tmp_path: Path) -> None:
    async with sides(tmp_path) as side:
        gate = threading.Event()
        side.threads.submit(gate.wait, 30)
        side.fetches.begin(fetch())
        await until(lambda: len(side.store.asked) == 1)
        await until(lambda: side.threads._work_queue.qsize() == 1)
        await side.store.close()
        await until(lambda: side.client.session() is None)
        gate.set()
        await until(lambda: len(side.ended) == 1)
        assert all(side.ended[0].good)


async def test_a_short_copy_does_not_wait_for_the_thread(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(store_fetch, "SHORT_COPY_S", 60.0)
    async with sides(tmp_path) as side:
        gate = threading.Event()
        side.threads.submit(gate.wait, 30)
        ended = await side.run(fetch())
        assert all(ended.good) and [side.block(n) for n in range(BLOCKS)] == side.contents
        gate.set()


async def test_a_store_that_is_too_slow_is_waited_for_no_longer(tmp_path: Path) -> None:
    """Mooncake 1088: stalls of 60 s. What comes too late is given back."""
    async with sides(tmp_path, timeout_s=0.1) as side:
        side.store.answer = lambda _: None
        ended = await side.run(fetch())
        assert ended.good == (False,) * BLOCKS
        assert ended.problem == "the KV store took longer than 0.1 s"
        assert side.fetches.missed == {NotFetched.LATE: BLOCKS}
        assert ended.seconds >= 0.1
        side.store.say_late(side.store.located(side.store.asked[0]))
        await until(lambda: side.store.released == [LeaseId("lease-1")])
        assert len(side.ended) == 1


async def test_a_copy_that_has_not_begun_in_time_never_begins(tmp_path: Path) -> None:
    async with sides(tmp_path, timeout_s=0.1) as side:
        gate = threading.Event()
        side.threads.submit(gate.wait, 30)
        ended = await side.run(fetch())
        assert ended.good == (False,) * BLOCKS
        before = side.region.content.copy()
        gate.set()
        await asyncio.wrap_future(side.threads.submit(lambda: None))
        assert np.array_equal(side.region.content, before)
        assert side.fetches.missed == {NotFetched.LATE: BLOCKS}


@pytest.mark.parametrize("why", ["late", "aborted", "closed"])
async def test_a_copy_that_is_under_way_is_waited_for(
    tmp_path: Path, monkeypatch, why: str
) -> None:
    """Pages of a request that ended must not be another's while somebody writes to them."""
    monkeypatch.setattr(store_session, "_SLICE_BYTES", 4 * SHAPE.page_bytes)
    begun, gate = threading.Event(), threading.Event()
    async with sides(tmp_path, timeout_s=0.2 if why == "late" else 1000.0) as side:
        session = side.client.session()
        assert session is not None
        pull = session._memory.pull

        def slowly(pages):
            if len(begun_slices) == 2:
                begun.set()
                assert gate.wait(30)
            begun_slices.append(pages)
            return pull(pages)

        begun_slices: list[object] = []
        monkeypatch.setattr(session._memory, "pull", slowly)
        side.fetches.begin(fetch())
        await until(begun.is_set)
        closing = None
        if why == "aborted":
            side.fetches.cancel(R, 1)
        elif why == "closed":
            closing = asyncio.create_task(side.fetches.close())
        (run,) = side.fetches._runs.values()
        await until(run.stop.is_set)
        await turns()
        assert side.ended == [] and (closing is None or not closing.done())
        gate.set()
        await until(lambda: len(side.ended) == 1)
        assert side.ended[0].good == (True, True, True, False, False, False)
        after = side.region.content.copy()
        await asyncio.wrap_future(side.threads.submit(lambda: None))
        assert np.array_equal(side.region.content, after)
        reason = NotFetched.LATE if why == "late" else NotFetched.ENDED
        assert side.fetches.missed == {reason: 3}
        if closing is not None:
            await closing


async def test_an_abort_ends_a_fetch_that_is_still_asked_for(tmp_path: Path) -> None:
    async with sides(tmp_path, timeout_s=1000.0) as side:
        side.store.answer = lambda _: None
        side.fetches.begin(fetch())
        side.fetches.begin(fetch("other"))
        await until(lambda: len(side.store.asked) == 2)
        side.fetches.cancel(R, 2)
        side.fetches.cancel(RequestId("nobody"), 1)
        side.store.answer = side.store.located
        side.fetches.begin(fetch("later"))
        await until(lambda: len(side.ended) == 1)
        assert side.ended[0].request == RequestId("later"), "that was another attempt of R's"
        side.fetches.cancel(R, 1)
        side.fetches.cancel(R, 1)
        await until(lambda: len(side.ended) == 2)
        assert side.ended[1].request == R and side.ended[1].problem == "the request has ended"
        side.store.say_late(side.store.located(side.store.asked[0]))
        await until(lambda: len(side.ended) == 3)
        assert all(side.ended[2].good)
        await until(lambda: len(side.store.released) == 3)


async def test_a_second_attempt_is_another_fetch(tmp_path: Path) -> None:
    async with sides(tmp_path, timeout_s=1000.0) as side:
        side.store.answer = lambda _: None
        side.fetches.begin(fetch())
        await until(lambda: len(side.store.asked) == 1)
        side.fetches.cancel(R, 1)
        side.store.answer = side.store.located
        side.fetches.begin(fetch(attempt=2, first=10))
        await until(lambda: len(side.ended) == 2)
        assert {one.attempt: all(one.good) for one in side.ended} == {1: False, 2: True}


async def test_fetches_run_side_by_side(tmp_path: Path) -> None:
    """One that is slow holds no other up."""
    async with sides(tmp_path, timeout_s=1000.0) as side:
        side.store.answer = lambda locate: (
            None if len(locate.keys) == 1 else side.store.located(locate)
        )
        side.fetches.begin(fetch("slow", blocks=1, first=50))
        for number in range(8):
            side.fetches.begin(fetch(f"r{number}", first=6 * number))
        await until(lambda: len(side.ended) == 8)
        assert [one.problem for one in side.ended] == [""] * 8
        for number in range(8):
            blocks = range(6 * number, 6 * number + 6)
            assert [side.block(block) for block in blocks] == side.contents
        await until(lambda: len(side.fetches) == 1)


async def test_after_close_nothing_is_written_and_nobody_waits(tmp_path: Path) -> None:
    async with sides(tmp_path, timeout_s=1000.0) as side:
        side.store.answer = lambda _: None
        for number in range(3):
            side.fetches.begin(fetch(f"r{number}"))
        await until(lambda: len(side.store.asked) == 3)
        await asyncio.wait_for(side.fetches.close(), 10)
        assert len(side.ended) == 3
        before = side.region.content.copy()
        side.store.say_late(side.store.located(side.store.asked[0]))
        await turns()
        assert np.array_equal(side.region.content, before)


async def test_a_broken_law_is_heard(tmp_path: Path) -> None:
    """A target that does not exist is our own fault, and no miss."""
    async with sides(tmp_path) as side:
        wrong = replace(fetch(blocks=1), targets=((0, 1, 2, SHAPE.pages),))
        side.fetches.begin(wrong)
        await asyncio.wait_for(side.fetches.ended(R, 1), 30)
        await until(lambda: len(side.broken) == 1)
        assert "do not exist" in str(side.broken[0]), "and nobody waits for its end"
        side.broken.clear()
