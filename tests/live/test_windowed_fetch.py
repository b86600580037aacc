"""Fetches of models with windows: pages that nobody reads behind what came are not copied."""

from dataclasses import replace
from pathlib import Path

import pytest
from fetch_side import BLOCKS, SHAPE, Side, fetch, key, sides

from antiphon.store.transfer import Miss

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("on_the_thread")]

WINDOWED = replace(fetch(), back=(0, 2, 2, 0))
"""Of the four pages of a block two are of layers whose window reaches two blocks back."""


def check(side: Side, block: int, *, whole: bool) -> None:
    size = SHAPE.page_bytes
    here, wanted = side.block(block), side.contents[block]
    for place, back in enumerate(WINDOWED.back):
        page = slice(place * size, (place + 1) * size)
        assert here[page] == (wanted[page] if whole or not back else bytes(size))


async def test_only_the_last_blocks_come_whole(tmp_path: Path) -> None:
    async with sides(tmp_path) as side:
        ended = await side.run(WINDOWED)
        assert ended.good == (True,) * BLOCKS and ended.problem == ""
        for block in range(BLOCKS):
            check(side, block, whole=block >= BLOCKS - 2)


@pytest.mark.parametrize("had", [1, 4])
async def test_the_last_blocks_that_it_has_come_whole(tmp_path: Path, had: int) -> None:
    async with sides(tmp_path) as side:
        for number in range(had, BLOCKS):
            del side.store.kept[key(number)]
        ended = await side.run(WINDOWED)
        assert ended.good == (True,) * had + (False,) * (BLOCKS - had)
        assert ended.problem == f"the KV store has {had} of {BLOCKS} blocks"
        for block in range(had):
            check(side, block, whole=block >= had - 2)


@pytest.mark.parametrize("bad", [0, BLOCKS - 1])
async def test_a_page_that_is_not_what_was_said_ends_all(tmp_path: Path, bad: int) -> None:
    """What is before it can't be gone on from: its windows' pages were not copied."""
    async with sides(tmp_path) as side:
        side.answering_block(bad, lambda page: replace(page, checksum=page.checksum ^ 1))
        ended = await side.run(WINDOWED)
        assert ended.good == (False,) * BLOCKS
        assert ended.problem == f"pages were not what was offered: 1 {Miss.CORRUPT}"
        assert side.fetches.missed == {Miss.CORRUPT: BLOCKS}
