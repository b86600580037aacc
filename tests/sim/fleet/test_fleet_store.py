"""One store of a virtual fleet: where blocks lie, and until when."""

import pytest

from antiphon.core.config import build
from antiphon.perf import LinkTime
from antiphon.sim import VirtualLoop
from antiphon.sim.fleet.fleet_store import FleetStore, Found, StoreSize
from antiphon.types import BlockKey, PutBlock, Tier

KEYS = [bytes([number]) * 32 for number in range(12)]
TENANT = b"tenant"
SSD = LinkTime(setup_s=0.0, bytes_per_s=100.0)
"""A block of 10 bytes in 0.1 s."""
CONFIG = build({}).store


def store(*, host: int, ssd: int = 0) -> tuple[FleetStore, VirtualLoop]:
    loop = VirtualLoop()
    size = StoreSize(host_blocks=host, ssd_blocks=ssd, block_bytes=10, ssd=SSD)
    return FleetStore(size, CONFIG, loop), loop


def put(made: FleetStore, keys: list[BlockKey]) -> list[bool]:
    """A chain, one after another."""
    begun: list[bool] = []
    for parent, key in zip([None, *keys], keys, strict=False):
        block = PutBlock(key=key, parent=parent, pages=())
        begun.append(made.begin_put(block, TENANT, "w0"))
        if begun[-1]:
            made.end_put(key, good=True)
    return begun


def located(
    made: FleetStore, loop: VirtualLoop, keys: list[BlockKey], wait_s: float = 9.0
) -> Found:
    found: list[Found] = []
    made.locate(keys, TENANT, holder="w1", wait_s=wait_s, then=found.append)
    if not found:
        loop.run_until(loop.now + wait_s)
    (one,) = found
    return one


def tiers(made: FleetStore) -> dict[Tier, set[BlockKey]]:
    return {
        where: {key for key, tier in made.held() if tier is where}
        for where in (Tier.HOST, Tier.DISK)
    }


def test_what_was_put_is_found_until_it_is_lost() -> None:
    made, loop = store(host=8)
    assert put(made, KEYS[:4]) == [True] * 4
    found = located(made, loop, KEYS[:6])
    assert (found.blocks, found.life) == (4, made.lives)
    assert made.stats().leases == 1
    assert made.release(found.lease)
    made.lose_all()
    assert len(made) == 0
    assert located(made, loop, KEYS[:6]).blocks == 0
    assert found.life != made.lives


def test_a_put_that_came_to_nothing_is_not_found() -> None:
    made, loop = store(host=8)
    assert made.begin_put(PutBlock(key=KEYS[0], parent=None, pages=()), TENANT, "w0")
    assert located(made, loop, KEYS[:1]).blocks == 0
    made.end_put(KEYS[0], good=False)
    assert located(made, loop, KEYS[:1]).blocks == 0


def test_who_is_gone_puts_and_holds_nothing_more() -> None:
    made, loop = store(host=8)
    put(made, KEYS[:2])
    located(made, loop, KEYS[:2])
    made.begin_put(PutBlock(key=KEYS[2], parent=KEYS[1], pages=()), TENANT, "w1")
    made.left("w1")
    assert made.stats().leases == 0
    assert located(made, loop, KEYS[:3]).blocks == 2


def test_what_is_in_doubt_is_found_nowhere() -> None:
    made, loop = store(host=8, ssd=8)
    put(made, KEYS[:2])
    loop.run_until(5.0)
    assert tiers(made)[Tier.DISK] == set(KEYS[:2])
    made.doubt(KEYS[1])
    assert KEYS[1] not in {key for key, _ in made.held()}
    assert located(made, loop, KEYS[:2]).blocks == 1


def test_what_memory_has_no_room_for_comes_back_from_the_ssd() -> None:
    made, loop = store(host=4, ssd=12)
    heard: list[object] = []
    made.listeners.append(heard.append)
    put(made, KEYS[:4])
    loop.run_until(5.0)
    put(made, KEYS[4:8])
    loop.run_until(10.0)
    assert tiers(made)[Tier.DISK] == set(KEYS[:8])
    assert tiers(made)[Tier.HOST] == set(KEYS[4:8])
    began = loop.now
    found: list[tuple[float, int]] = []
    made.locate(
        KEYS[:3],
        TENANT,
        holder="w1",
        wait_s=9.0,
        then=lambda one: found.append((loop.now, one.blocks)),
    )
    loop.run_until(began + 9.0)
    assert found == [(pytest.approx(began + 3 * 0.1), 3)]
    assert len(heard) == 4 + 4 + 4 + 4 + 4 + 3 + 3


def test_who_can_not_wait_gets_what_is_there() -> None:
    made, loop = store(host=4, ssd=12)
    put(made, KEYS[:4])
    loop.run_until(5.0)
    put(made, KEYS[4:8])
    loop.run_until(10.0)
    assert located(made, loop, KEYS[:3], wait_s=0.25).blocks == 2
    loop.run_until(20.0)
    assert made.stats().leases <= 1


def test_two_who_want_the_same_wait_for_one_load() -> None:
    made, loop = store(host=4, ssd=12)
    put(made, KEYS[:4])
    loop.run_until(5.0)
    put(made, KEYS[4:8])
    loop.run_until(10.0)
    ends: list[tuple[float, int]] = []
    for holder in ("w1", "w2"):
        made.locate(
            KEYS[:2],
            TENANT,
            holder=holder,
            wait_s=9.0,
            then=lambda one: ends.append((loop.now, one.blocks)),
        )
    loop.run_until(12.0)
    assert ends == [(pytest.approx(10.2), 2)] * 2


def test_a_full_ssd_takes_nothing_until_there_is_room() -> None:
    made, loop = store(host=8, ssd=8)
    made.fill()
    put(made, KEYS[:2])
    loop.run_until(5.0)
    assert tiers(made)[Tier.DISK] == set()
    made.make_room()
    loop.run_until(10.0)
    assert tiers(made)[Tier.DISK] == set(KEYS[:2])


def test_what_is_lost_while_it_is_copied_is_lost() -> None:
    """To the SSD, and from it."""
    made, loop = store(host=4, ssd=12)
    put(made, KEYS[:2])
    made.lose_all()
    loop.run_until(5.0)
    assert len(made) == 0
    put(made, KEYS[:4])
    loop.run_until(10.0)
    put(made, KEYS[4:8])
    loop.run_until(15.0)
    found: list[int] = []
    made.locate(
        KEYS[:2], TENANT, holder="w1", wait_s=9.0, then=lambda one: found.append(one.blocks)
    )
    loop.run_until(15.05)
    made.lose_all()
    loop.run_until(30.0)
    assert found == [0]
    assert len(made) == 0
