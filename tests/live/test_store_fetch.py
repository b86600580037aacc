"""Fetches from a store that answers: well, wrong, damaged, with a part, or several at once."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fetch_side import BLOCKS, SHAPE, R, fetch, key, sides
from link_kit import until

from antiphon.core.tiers import LOCATE_SHARE
from antiphon.live import store_fetch
from antiphon.live.store_fetch import FetchEnded, NotFetched
from antiphon.store.transfer import Miss
from antiphon.types import LeaseId, Located

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("on_the_thread")]


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


async def test_a_short_copy_does_not_wait_for_the_thread(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(store_fetch, "SHORT_COPY_S", 60.0)
    async with sides(tmp_path) as side:
        gate = threading.Event()
        side.threads.submit(gate.wait, 30)
        ended = await side.run(fetch())
        assert all(ended.good) and [side.block(n) for n in range(BLOCKS)] == side.contents
        gate.set()


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


async def test_a_broken_law_is_heard(tmp_path: Path) -> None:
    """A target that does not exist is our own fault, and no miss."""
    async with sides(tmp_path) as side:
        wrong = replace(fetch(blocks=1), targets=((0, 1, 2, SHAPE.pages),))
        side.fetches.begin(wrong)
        await asyncio.wait_for(side.fetches.ended(R, 1), 30)
        await until(lambda: len(side.broken) == 1)
        assert "do not exist" in str(side.broken[0]), "and nobody waits for its end"
        side.broken.clear()
