"""Looking for blocks while the remote tier does not answer, by a clock that stands still."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from store_kit import (
    BLOCK_BYTES,
    DEADLINE_S,
    IDENTITY,
    NUMERICS,
    SHAPE,
    TENANT,
    FakeWorker,
    keys_of,
    prompt,
)

from antiphon.core.store_joining import Tenancy
from antiphon.core.tiers import Slot
from antiphon.live.store.host_memory import HostBlocks
from antiphon.live.store.remote_blocks import RemoteBlocks
from antiphon.live.store.tiered_blocks import Source, TieredBlocks
from antiphon.store.record import KvOrigin
from antiphon.store.remote import RemoteTier
from antiphon.store.transfer import MappedRegion
from antiphon.types import BlockKey, KvChange, LeaseId, StoreConfig, Tier

HOLDER = "reader"


class GatedValues:
    """A remote system with values, which answers while `gate` is open. `asked` counts its calls."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Semaphore(0)
        self.reads = 0

    def _answer(self) -> None:
        self.asked.release()
        assert self.gate.wait(DEADLINE_S)

    def exists(self, names: Sequence[bytes]) -> list[bool]:
        self._answer()
        return [name in self.values for name in names]

    def get(self, names: Sequence[bytes], most_bytes: int) -> list[bytes | None]:
        self.reads += 1
        self._answer()
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

    async def put(self, key: BlockKey) -> None:
        self.blocks.put(self.source, TENANT, [self.worker.sealed(key, None)])
        await self.until_held(key)

    async def locate(
        self, *keys: BlockKey, wait_s: float = DEADLINE_S
    ) -> tuple[LeaseId | None, tuple[Slot, ...], int]:
        return await self.blocks.locate(keys, TENANT, wait_s, HOLDER)

    def keys_in(self, slots: Sequence[Slot]) -> list[BlockKey]:
        """What lies in these slots."""
        return [self.blocks.memory.sealed(slot).record.key for slot in slots]


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
        it.remote.gate.clear()
        looking = asyncio.create_task(it.locate(first, beyond))
        await it.until_asked()
        it.now = 2.0  # the lease is over
        await it.put(single(2))  # and its slot another's
        it.remote.gate.set()
        lease, slots, brought = await looking
        assert (lease, slots, brought) == (None, (), 0)


async def test_the_answers_lease_is_as_long_as_it_says() -> None:
    first, beyond = keys_of(prompt(2, seed=1))
    async with scene(slots=1) as it:
        await it.put(first)
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
