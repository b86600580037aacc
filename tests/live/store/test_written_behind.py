"""Writing behind: bounded, each block held while it is written and no longer, drops counted."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from store_callers import IDENTITY, SHAPE, keys_of, prompt

from antiphon.core.store_joining import Tenancy
from antiphon.core.tiers import HostTier, policy_named
from antiphon.live.store.host_memory import HeldBlock, HostBlocks, HostMemory
from antiphon.live.store.written_behind import WrittenBehind
from antiphon.store.record import RecordedBlock
from antiphon.types import BlockKey, Tier


class SlowTier(WrittenBehind[list[bytes]]):
    """Takes what it gets when `gate` is open."""

    def __init__(self, host: HostBlocks) -> None:
        super().__init__(Tier.DISK, host, note=lambda _: None)
        self.gate = threading.Event()
        self.gate.set()
        self.writing = threading.Event()
        self.written: list[BlockKey] = []

    def _write(self, blocks: Sequence[HeldBlock]) -> list[bytes]:
        self.writing.set()
        assert self.gate.wait(30)
        return [page.tobytes() for one in blocks for page in one.pages]

    def _wrote(self, blocks: Sequence[HeldBlock], result: list[bytes]) -> None:
        assert len(result) == sum(len(one.pages) for one in blocks)
        self.written += [one.sealed.record.key for one in blocks]


class Scene:
    """A host tier of four slots before a slow tier."""

    def __init__(self) -> None:
        self.memory = HostMemory(Tenancy(IDENTITY, SHAPE), 4 * 4096)
        tier = HostTier(slots=4, policy=policy_named("lru"), lease_ttl_s=1.0, listen=lambda _: None)
        self.host = HostBlocks(tier, self.memory, lambda: 0.0)
        self.slow = SlowTier(self.host)

    def put(self, key: BlockKey) -> bool:
        slot = self.host.tier.begin_put(key, None, b"", 0.0)
        if not isinstance(slot, int):
            return False
        pages = self.memory.fill(slot, lambda _: True)
        assert pages is not None
        self.memory.seal(slot, RecordedBlock(key=key, parent=None), pages)
        return self.host.tier.end_put(key, True, 0.0)


def chains(count: int) -> list[BlockKey]:
    return [keys_of(prompt(1, seed))[0] for seed in range(count)]


async def test_what_is_offered_is_written_once_and_then_may_go() -> None:
    scene, keys = Scene(), chains(4)
    assert all(map(scene.put, keys))
    for key in (*keys, *keys):
        scene.slow.offer(key)
    running = asyncio.create_task(scene.slow.run())
    await asyncio.wait_for(scene.slow.settled(keys), 30)
    assert sorted(scene.slow.written) == sorted(keys)
    assert scene.host.tier.stats(1).leases == 0
    running.cancel()


async def test_what_is_being_written_stays_and_what_waits_may_be_evicted() -> None:
    """LMCache 1285: a slow disk writer kept the memory that it had not written."""
    scene, keys = Scene(), chains(8)
    scene.slow.gate.clear()
    assert all(map(scene.put, keys[:2]))
    for key in keys[:2]:
        scene.slow.offer(key)
    running = asyncio.create_task(scene.slow.run())
    await asyncio.sleep(0)
    for key in keys[2:]:
        scene.put(key)
        scene.slow.offer(key)
    assert all(key in scene.host.tier for key in keys[:2])
    scene.slow.gate.set()
    await asyncio.wait_for(scene.slow.settled(keys), 30)
    assert set(keys[:2]) <= set(scene.slow.written)
    assert scene.slow.blocks.dropped_gone == len(keys) - len(scene.slow.written) > 0
    running.cancel()


async def test_cancelled_while_it_writes_it_lets_go_when_that_is_done() -> None:
    scene, [key] = Scene(), chains(1)
    scene.put(key)
    scene.slow.gate.clear()
    scene.slow.offer(key)
    running = asyncio.create_task(scene.slow.run())
    assert await asyncio.to_thread(scene.slow.writing.wait, 30)
    running.cancel()
    await asyncio.sleep(0)
    assert scene.host.tier.stats(1).leases == 1
    scene.slow.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert scene.host.tier.stats(1).leases == 0


async def test_a_block_that_was_damaged_in_memory_is_seen() -> None:
    scene, keys = Scene(), chains(3)
    assert all(map(scene.put, keys))
    held = [scene.host.hold(key, "test") for key in keys]
    slots = [one.slot for one in held if one is not None]
    assert scene.memory.intact(slots) == [True] * 3
    scene.memory.pages(slots[1])[2][5] ^= 1
    assert scene.memory.intact(slots) == [True, False, True]
