"""Looking for blocks while the remote tier does not answer, by a clock that stands still."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from store_callers import (
    BLOCK_BYTES,
    DEADLINE_S,
    IDENTITY,
    NUMERICS,
    SHAPE,
    TENANT,
    FakeWorker,
    content_of,
    keys_of,
    prompt,
)

from antiphon.core.store_joining import Tenancy
from antiphon.core.tiers import Slot
from antiphon.live.store.host_memory import HostBlocks
from antiphon.live.store.remote_blocks import RemoteBlocks
from antiphon.live.store.tiered_blocks import MOST_FETCHES, Source, TieredBlocks
from antiphon.store.record import KvOrigin
from antiphon.store.remote import RemoteTier
from antiphon.store.transfer import MappedRegion
from antiphon.types import BlockKey, KvChange, LeaseId, StoreConfig, Tier

HOLDER = "reader"
NOTHING = (None, (), 0)


class GatedValues:
    """A remote system with values, which answers while `gate` is open. `asked` counts its calls."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Semaphore(0)
        self.reads = 0
        self._only_reads = False

    def block_reads(self) -> None:
        """Close the gate for `get` alone."""
        self._only_reads = True
        self.gate.clear()

    def _answer(self, *, reads: bool = False) -> None:
        self.asked.release()
        assert (self._only_reads and not reads) or self.gate.wait(DEADLINE_S)

    def exists(self, names: Sequence[bytes]) -> list[bool]:
        self._answer()
        return [name in self.values for name in names]

    def get(self, names: Sequence[bytes], most_bytes: int) -> list[bytes | None]:
        self.reads += 1
        self._answer(reads=True)
        return [self.values.get(name) for name in names]

    def put(self, values: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        self.values.update(values)
        return [True] * len(values)

    def remove(self, names: Sequence[bytes]) -> None:
        for name in names:
            self.values.pop(name, None)

    def reset(self) -> None:
        """Nothing ends a call but the gate."""


class Scene:
    """Blocks in `slots` slots, and behind them a remote system. `now` is what the clock says."""

    def __init__(self, slots: int) -> None:
        self.now = 0.0
        self.remote = GatedValues()
        self.held: set[tuple[BlockKey, Tier]] = set()
        self._news = asyncio.Event()
        tenancy = Tenancy(IDENTITY, SHAPE)
        self.blocks = TieredBlocks(
            tenancy,
            StoreConfig(memory_bytes=slots * BLOCK_BYTES, lease_ttl_s=1.0, policy="lru"),
            note=self._note,
            open_slower=lambda host: (None, self._open(host)),
            spawn=asyncio.create_task,
            clock=lambda: self.now,
        )
        self.blocks.start()
        self.worker = FakeWorker(Path("/nowhere"))
        memory = MappedRegion(self.worker.region.fd, self.blocks.memory.region)
        self.source = Source("writer", NUMERICS, memory)

    def _open(self, host: HostBlocks) -> RemoteBlocks:
        tier = RemoteTier(self.remote, KvOrigin.of(SHAPE, IDENTITY), timeout_s=2 * DEADLINE_S)
        return RemoteBlocks(tier, host, note=self._note)

    def _note(self, change: KvChange) -> None:
        place = (change.key, change.tier)
        (self.held.add if change.stored else self.held.discard)(place)
        self._news.set()

    async def until_held(self, key: BlockKey, tier: Tier = Tier.HOST) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while (key, tier) not in self.held:
                self._news.clear()
                await self._news.wait()

    async def until_asked(self) -> None:
        """The remote has been asked once more."""
        assert await asyncio.to_thread(self.remote.asked.acquire, timeout=DEADLINE_S)

    def offer(self, key: BlockKey, parent: BlockKey | None = None) -> None:
        """A worker puts a block; it may come to nothing."""
        self.blocks.put(self.source, TENANT, [self.worker.sealed(key, parent)])

    async def put(self, key: BlockKey, parent: BlockKey | None = None) -> None:
        self.offer(key, parent)
        await self.until_held(key)

    async def locate(
        self, *keys: BlockKey, wait_s: float = DEADLINE_S
    ) -> tuple[LeaseId | None, tuple[Slot, ...], int]:
        return await self.blocks.locate(keys, TENANT, wait_s, HOLDER)

    def keys_in(self, slots: Sequence[Slot]) -> list[BlockKey]:
        """What lies in these slots."""
        return [self.blocks.memory.sealed(slot).record.key for slot in slots]

    def bytes_in(self, slots: Sequence[Slot]) -> bytes:
        return b"".join(page.tobytes() for slot in slots for page in self.blocks.memory.pages(slot))


@asynccontextmanager
async def scene(slots: int) -> AsyncIterator[Scene]:
    made = Scene(slots)
    try:
        yield made
    finally:
        made.remote.gate.set()
        await made.blocks.close()
        made.source.memory.close()
        made.worker.region.close()


def single(seed: int) -> BlockKey:
    [key] = keys_of(prompt(1, seed))
    return key


async def test_what_a_lease_that_ran_out_meanwhile_had_is_not_the_answer() -> None:
    """Mooncake 850 once more: while the store looked further, its own lease on the beginning ended,
    and it told the reader of a slot in which another prompt's block lay by then."""
    first, beyond = keys_of(prompt(2, seed=1))
    async with scene(slots=1) as it:
        await it.put(first)
        await it.until_held(first, Tier.REMOTE)  # else it is held until it could be written
        it.remote.gate.clear()
        looking = asyncio.create_task(it.locate(first, beyond))
        await it.until_asked()
        it.now = 2.0  # the lease is over
        await it.put(single(2))  # and its slot another's
        it.remote.gate.set()
        lease, slots, brought = await looking
        assert (lease, slots, brought) == NOTHING


async def test_the_answers_lease_is_as_long_as_it_says() -> None:
    first, beyond = keys_of(prompt(2, seed=1))
    async with scene(slots=1) as it:
        await it.put(first)
        await it.until_held(first, Tier.REMOTE)  # else it is held until it could be written
        it.remote.gate.clear()
        looking = asyncio.create_task(it.locate(first, beyond))
        await it.until_asked()
        it.now = 0.9
        it.remote.gate.set()
        lease, slots, _ = await looking
        assert lease is not None
        assert it.keys_in(slots) == [first]
        it.now = 1.8  # 0.9 s after the answer
        assert it.blocks.host.release(lease, it.now)


async def test_who_looks_through_a_remote_that_is_busy_waits_as_long_as_he_said() -> None:
    """Mooncake 1088: requests stalled for a minute behind a store that did not answer."""
    async with scene(slots=1) as it:
        it.remote.gate.clear()
        patient = asyncio.create_task(it.locate(single(0)))
        await it.until_asked()
        for _ in range(2):  # the places of the first are free for the second
            many = [it.locate(single(seed), wait_s=0.02) for seed in range(1, MOST_FETCHES)]
            async with asyncio.timeout(DEADLINE_S / 2):
                assert await asyncio.gather(*many) == [NOTHING] * len(many)
        assert "too_many_fetches" not in it.blocks.dropped
        assert not patient.done()
        it.now = 1.0
        it.remote.gate.set()
        assert await patient == NOTHING
        assert await it.locate(single(99)) == NOTHING
        await it.until_asked()
        assert not it.remote.asked.acquire(blocking=False), "nobody waited for the others any more"


async def test_a_slot_is_nobody_elses_while_the_remote_may_still_write_to_it() -> None:
    late, other = single(1), single(2)
    async with scene(slots=2) as it:
        await it.put(late)
        await it.until_held(late, Tier.REMOTE)
        it.blocks.host.clear()
        it.remote.block_reads()
        assert (await it.locate(late, wait_s=0.2))[1] == ()
        assert it.remote.reads == 1
        assert it.blocks.host.writing_slots == 1
        await it.put(other)  # there is one slot more, and it gets that
        it.blocks.host.clear(keys=[other])
        it.remote.gate.set()
        await it.until_held(late)
        assert it.blocks.host.writing_slots == 0
        lease, slots, brought = await it.locate(late)
        assert lease is not None
        assert (it.keys_in(slots), brought) == ([late], 0)
        assert it.bytes_in(slots) == content_of(late)


async def test_blocks_that_nobody_waits_for_any_more_are_not_read() -> None:
    """Their slots are given back as soon as it is their turn."""
    keys = [single(seed) for seed in range(4)]
    async with scene(slots=4) as it:
        for key in keys:
            await it.put(key)
            await it.until_held(key, Tier.REMOTE)
        it.blocks.host.clear()
        it.remote.block_reads()
        looking = [asyncio.create_task(it.locate(key, wait_s=0.2)) for key in keys]
        async with asyncio.timeout(DEADLINE_S / 2):
            assert [slots for _, slots, _ in await asyncio.gather(*looking)] == [()] * 4
        assert it.blocks.host.writing_slots == 4
        it.now = 1.0
        it.remote.gate.set()
        await it.until_held(keys[0])
        assert (await it.locate(keys[0], single(9)))[2] == 0  # behind all the others
        assert it.remote.reads == 1
        assert it.blocks.host.writing_slots == 0


async def test_a_block_whose_beginning_nobody_has_pushes_nothing_out() -> None:
    """Nobody would find it: a search ends at the first block that is missing."""
    begun, orphan = keys_of(prompt(2, seed=1))
    async with scene(slots=1) as it:
        await it.put(single(2))
        await it.until_held(single(2), Tier.REMOTE)
        it.offer(orphan, begun)
        await it.put(single(3))  # its turn comes after the orphan's
        assert dict(it.blocks.host.stats(BLOCK_BYTES).dropped) == {"orphan": 1}
        assert (orphan, Tier.HOST) not in it.held


async def test_a_block_whose_beginning_a_slower_tier_has_is_as_good_as_any() -> None:
    first, second = keys_of(prompt(2, seed=1))
    async with scene(slots=1) as it:
        await it.put(first)
        await it.until_held(first, Tier.REMOTE)
        await it.put(single(2))  # in the first one's place
        await it.until_held(single(2), Tier.REMOTE)
        await it.put(second, first)
        lease, slots, brought = await it.locate(second)
        assert lease is not None
        assert (it.keys_in(slots), brought) == ([second], 0)
