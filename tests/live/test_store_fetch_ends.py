"""Fetches from a store that is away, late or dying, and those that are aborted or closed."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from fetch_side import BLOCKS, SHAPE, R, fetch, sides
from link_kit import turns, until

from antiphon.live import store_session
from antiphon.live.store_fetch import NotFetched
from antiphon.types import LeaseId, RequestId

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("on_the_thread")]


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
