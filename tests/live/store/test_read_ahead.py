"""Blocks that cross the network as they are: the next turn is asked for while one comes, from a
peer that is quick; and how long they take is said."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pool_kit import Pooled, pooled
from store_callers import BLOCK_BYTES, contents

from antiphon.core.tiers import BLOCKS_A_TURN
from antiphon.live.store.pool import chunk_reading
from antiphon.live.store.pool.home_moves import HomeMoves
from antiphon.live.store.pool.pool_link import PoolLink
from antiphon.types import BlockKey, PoolLent, StoreOp, Tier, TierStats

TURNS = 4
BLOCKS = TURNS * BLOCKS_A_TURN


@pytest.fixture(autouse=True)
def nothing_goes_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is read because somebody looked for it."""
    monkeypatch.setattr(HomeMoves, "asked", lambda *_: None)


async def peers_of(store: Pooled) -> TierStats:
    stats = (await store.gateway.ask(StoreOp.STATS)).stats
    [found] = [one for one in stats if one.tier is Tier.PEER]
    return found


async def known_at(store: Pooled, keys: list[BlockKey]) -> None:
    await store.gateway.until(lambda: set(keys) <= store.gateway.on(Tier.PEER))


def turns_of(keys: list[BlockKey]) -> list[list[BlockKey]]:
    return [keys[at : at + BLOCKS_A_TURN] for at in range(0, len(keys), BLOCKS_A_TURN)]


async def test_the_next_turn_is_asked_for_while_one_comes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is held back until the second was asked for."""
    calls, second, borrow = list[list[BlockKey]](), asyncio.Event(), PoolLink.borrow

    async def held(self: PoolLink, blocks: Mapping[BlockKey, int], *args: Any, **said: Any) -> Any:
        calls.append(list(blocks))
        if len(calls) == 1:
            await asyncio.wait_for(second.wait(), 10.0)
        second.set()
        return await borrow(self, blocks, *args, **said)

    async with pooled(folder, "a", "b") as (a, b):
        keys = await a.worker.put_prompt(blocks=BLOCKS)
        await known_at(b, keys)
        monkeypatch.setattr(PoolLink, "borrow", held)
        assert await b.worker.fetch(keys, wait_s=20.0) == contents(keys)
        assert calls == turns_of(keys)


async def test_a_slow_peer_is_asked_turn_by_turn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_reading, "_QUICK_S", 0.0)
    calls, under_way, borrow = list[list[BlockKey]](), 0, PoolLink.borrow

    async def counted(
        self: PoolLink, blocks: Mapping[BlockKey, int], *args: Any, **said: Any
    ) -> PoolLent:
        nonlocal under_way
        calls.append(list(blocks))
        assert not under_way
        under_way += 1
        try:
            await asyncio.sleep(0.01)
            return await borrow(self, blocks, *args, **said)
        finally:
            under_way -= 1

    async with pooled(folder, "a", "b") as (a, b):
        keys = await a.worker.put_prompt(blocks=BLOCKS)
        await known_at(b, keys)
        monkeypatch.setattr(PoolLink, "borrow", counted)
        assert await b.worker.fetch(keys, wait_s=20.0) == contents(keys)
        assert calls == turns_of(keys)


async def test_a_pool_that_encodes_nothing_says_how_long_its_blocks_take(folder: Path) -> None:
    """Routers hear it; nothing was ever left to be computed."""
    async with pooled(folder, "a", "b") as (a, b):
        keys = await a.worker.put_prompt(blocks=BLOCKS)
        await known_at(b, keys)
        before = await peers_of(b)
        assert (before.block_s, before.levels) == (None, ())
        assert await b.worker.fetch(keys, wait_s=20.0) == contents(keys)
        after = await peers_of(b)
        assert after.block_s is not None
        assert 0.0 < after.block_s < 20.0
        assert after.computed_blocks_total == 0
        [raw] = after.levels
        assert (raw.level, raw.chosen_total) == ("raw", TURNS)
        assert (raw.read_blocks_total, raw.read_bytes_total) == (BLOCKS, BLOCKS * BLOCK_BYTES)
        assert (raw.encoded_blocks_total, raw.decode_s_total) == (0, 0.0)
        assert (await peers_of(a)).block_s is None, "it has read none"
