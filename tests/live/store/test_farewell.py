"""A store that leaves gives what can be given, and does not wait for what can't."""

import asyncio
from collections.abc import Sequence

from store_callers import until

from antiphon.core.store_pool import PoolNode, PoolRules, StorePool
from antiphon.live.store.pool.farewell import hand_over
from antiphon.types import (
    BlockKey,
    Incarnation,
    KvChange,
    KvDump,
    PlacedBlock,
    StoreName,
    Tier,
)

HEIR = PoolNode(name=StoreName("b"), incarnation=Incarnation("1"), weight=100)
FOREVER = 3600.0


class Heir:
    """Takes at once what it is told of, and says so."""

    def __init__(self, pool: StorePool) -> None:
        self.pool = pool
        self.held: list[tuple[BlockKey, Tier]] = []

    async def place(self, blocks: Sequence[PlacedBlock]) -> None:
        self.held += [(block.key, Tier.HOST) for block in blocks]
        dump = KvDump(next=1, begins=True, ends=True, blocks=tuple(self.held))
        self.pool.heard(HEIR.name, HEIR.incarnation, dump, 0.0)


def key_of(number: int) -> BlockKey:
    return BlockKey(number.to_bytes(32, "big"))


def placed(keys: Sequence[BlockKey]) -> list[PlacedBlock]:
    return [PlacedBlock(key=key, parent=None, position=0, tenant=b"", numerics="") for key in keys]


def pool_with_peer() -> StorePool:
    me = PoolNode(name=StoreName("a"), incarnation=Incarnation("1"), weight=100)
    rules = PoolRules(block_bytes=1, bytes_per_s=1e9)
    pool = StorePool(me, rules, listen=lambda change: None)
    pool.joined(HEIR)
    return pool


async def test_lossy_copies_stand_in_no_ones_way() -> None:
    """More of them than are looked at together, before one that can be given."""
    pool = pool_with_peer()
    for number in range(600):
        pool.changed(KvChange(key_of(number), Tier.HOST, True), exact=False)
    pool.changed(KvChange(key_of(1000), Tier.HOST, True))
    heir = Heir(pool)
    async with asyncio.timeout(10):
        await hand_over(pool, lambda name: heir, placed, within_s=FOREVER)  # type: ignore[arg-type, return-value]
    assert heir.held == [(key_of(1000), Tier.HOST)]


async def test_what_can_not_be_placed_is_passed_over() -> None:
    """It is in use, or went meanwhile: what is behind it is told all the same."""
    pool = pool_with_peer()
    for number in range(1300):
        pool.changed(KvChange(key_of(number), Tier.HOST, True))
    good = {key_of(number) for number in range(1200, 1300)}

    def some(keys: Sequence[BlockKey]) -> list[PlacedBlock]:
        return placed([key for key in keys if key in good])

    heir = Heir(pool)
    async with asyncio.timeout(10):
        await hand_over(pool, lambda name: heir, some, within_s=FOREVER)  # type: ignore[arg-type, return-value]
    assert {key for key, _ in heir.held} == good


async def test_what_was_told_and_not_taken_does_not_stop_the_rest() -> None:
    pool = pool_with_peer()
    for number in range(1300):
        pool.changed(KvChange(key_of(number), Tier.HOST, True))
    told: set[BlockKey] = set()

    class Refuses(Heir):
        async def place(self, blocks: Sequence[PlacedBlock]) -> None:
            told.update(block.key for block in blocks)

    work = asyncio.create_task(
        hand_over(pool, lambda name: Refuses(pool), placed, within_s=FOREVER)  # type: ignore[arg-type, return-value]
    )
    await until(lambda: len(told) == 1300)
    assert not work.done(), "it waits for those"
    work.cancel()


def test_a_lossy_copy_that_becomes_exact_is_given() -> None:
    pool = pool_with_peer()
    key = key_of(1)
    pool.changed(KvChange(key, Tier.HOST, True), exact=False)
    assert not pool.sole_copies()
    pool.changed(KvChange(key, Tier.HOST, False), exact=False)
    pool.changed(KvChange(key, Tier.HOST, True))
    assert pool.sole_copies() == {HEIR.name: [key]}
