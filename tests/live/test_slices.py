"""Long work in slices: in order, whole, and others have their turn."""

import asyncio

import pytest

from antiphon.live.slices import slices


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
async def test_all_of_it_in_order_and_others_run_between(count: int) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    parts = [list(part) async for part in slices(range(count), 3)]
    assert [one for part in parts for one in part] == list(range(count))
    assert all(1 <= len(part) <= 3 for part in parts)
    assert turns >= len(parts) - 1
    running.cancel()
