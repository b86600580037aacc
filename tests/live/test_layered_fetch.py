"""Fetches that come layer by layer, by hand: what their gates let through, and that they end."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fetch_side import BLOCKS, SHAPE, Side, fetch, sides
from link_kit import until

from antiphon.live import store_fetch, store_session
from antiphon.live.layer_gates import LayerWait, group_starts, parts_of
from antiphon.live.store_fetch import Arriving, LayerGroups, NotFetched
from antiphon.store.transfer import MappedRegion, Miss
from antiphon.types import RequestId

pytestmark = pytest.mark.timeout(120)
LAYERS = 4
STARTS = group_starts(LAYERS, SHAPE.page_bytes, LAYERS)
LAST = LAYERS - 1
R = RequestId("r")


class Held:
    """The copy stops before the last layers until `let` is set."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.arriving: list[Arriving] = []
        parts = parts_of(STARTS, LAYERS, SHAPE.page_bytes)
        self.layers = LayerGroups(starts=STARTS, parts=parts, on_arriving=self.arriving.append)

    async def reached(self, side: Side) -> LayerWait:
        """All but the last layers are here: who computes would wait here."""
        side.fetches.begin(fetch())
        await until(lambda: len(self.arriving) == LAST)
        return side.fetches.gates(R, 1).waiting(60.0)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held, pull_part = Held(), MappedRegion.pull_part

    def slow(self, pages, part):
        if part.last:
            assert held.let.wait(60)
        return pull_part(self, pages, part)

    monkeypatch.setattr(MappedRegion, "pull_part", slow)
    monkeypatch.setattr(store_fetch, "LONG_COPY_S", 0.0)
    yield held
    held.let.set()


async def test_the_last_gate_opens_when_all_pages_are_proven(tmp_path: Path, held: Held) -> None:
    async with sides(tmp_path, layers=held.layers) as side:
        wait = await held.reached(side)
        assert [one.here for one in held.arriving] == [1, 2, 3]
        assert all(wait.wait(group) for group in range(LAST))
        assert side.ended == []
        held.let.set()
        await until(lambda: len(side.ended) == 1)
        assert side.ended[0].good == (True,) * BLOCKS and wait.wait(LAST)
        assert [side.block(number) for number in range(BLOCKS)] == side.contents


@pytest.mark.parametrize("bad", [0, 3, BLOCKS - 1])
async def test_one_bad_page_keeps_the_last_gate_shut(tmp_path: Path, held: Held, bad: int) -> None:
    async with sides(tmp_path, layers=held.layers) as side:
        wait = await held.reached(side)
        came = side.region.content.reshape(SHAPE.pages, -1)[4 * bad + 3]
        came[0] ^= 1  # in the first layers, whose gates are open
        held.let.set()
        assert not await asyncio.to_thread(wait.wait, LAST)
        await until(lambda: len(side.ended) == 1)
        assert side.ended[0].good == (True,) * bad + (False,) * (BLOCKS - bad)
        assert side.fetches.missed == {Miss.CORRUPT: BLOCKS - bad}


@pytest.mark.parametrize("why", ["aborted", "store gone, then aborted"])
async def test_a_fetch_that_is_given_up_lets_go_who_waits(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(store_session, "_SLICE_BYTES", SHAPE.page_bytes)  # a block of a part
    async with sides(tmp_path, timeout_s=1000.0, layers=held.layers) as side:
        wait = await held.reached(side)
        engine = asyncio.create_task(asyncio.to_thread(wait.wait, LAST))
        if why != "aborted":
            await side.store.close()
            await until(lambda: side.client.session() is None)
        stopped = side.fetches._runs[R, 1].stop
        side.fetches.cancel(R, 1)
        await until(stopped.is_set)
        assert not engine.done() and side.ended == [], "something still comes into its pages"
        held.let.set()
        await until(lambda: len(side.ended) == 1)
        assert side.ended[0].good == (False,) * BLOCKS
        assert not await engine


async def test_a_fetch_that_is_not_whole_comes_at_once(tmp_path: Path, held: Held) -> None:
    """Nobody may compute behind it."""
    async with sides(tmp_path, layers=held.layers) as side:
        del side.store.kept[(BLOCKS - 1).to_bytes(32, "big")]
        ended = await side.run(fetch())
        assert ended.good == (True,) * (BLOCKS - 1) + (False,)
        assert not held.arriving and side.fetches.missed == {NotFetched.GONE: 1}
