"""Blocks on their way from slower tiers into shared memory, for those who look for them.

What is read, and in which order, is decided by `core.tiers.BringUp`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from antiphon.core.store_pool import EXACT, RAW, FetchTerms
from antiphon.core.tiers import BLOCKS_A_TURN, BringUp, Declined, Load, Slot, Turn
from antiphon.store.record import RecordedBlock
from antiphon.types import BlockKey, OfferedPage, Seconds, Tier

from .disk_blocks import DiskBlocks
from .host_memory import HostBlocks
from .peers import Peers, Reading
from .remote_blocks import RemoteBlocks

_NOBODY = b""
_HOLDER = "bringing up"
STAYS_S: Seconds = 0.1
"""So long a block that came from a peer stays at least."""

Arrived: TypeAlias = Callable[[Slot, RecordedBlock, tuple[OfferedPage, ...] | None, Tier], object]
"""A slot was filled from that tier, or (None) could not be."""
Pages: TypeAlias = tuple[OfferedPage, ...]
Fill: TypeAlias = Callable[[RecordedBlock, Slot], Awaitable[tuple[RecordedBlock, Pages | None]]]
"""What is in the slot now; None: nothing of use."""


class BringingUp:
    """Loads that are under way. Whoever looks for a block that is on its way waits for the same."""

    def __init__(
        self,
        host: HostBlocks,
        disk: DiskBlocks | None,
        peers: Peers,
        remote: RemoteBlocks | None,
        *,
        arrived: Arrived,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self._host = host
        self._disk = disk
        self._peers = peers
        self._remote = remote
        self._arrived = arrived
        self._spawn = spawn
        self._loads: dict[BlockKey, asyncio.Task[None]] = {}
        self._calls = count(1)

    @property
    def possible(self) -> bool:
        """Whether there are slower tiers at all."""
        there = self._disk is not None or self._remote is not None
        return there or self._peers.possible

    async def bring_up(
        self,
        keys: Sequence[BlockKey],
        after: BlockKey | None,
        tenant: bytes | None,
        wait_s: Seconds,
        keep: Callable[[Sequence[BlockKey]], int],
        terms: FetchTerms = EXACT,
    ) -> int:
        """Have as long a prefix of the keys as can be in shared memory within `wait_s`, unless the
        rest is better computed; how many blocks were read for it.

        `after` is the block that the first of them continues. `keep` is to hold blocks that came,
        and returns how many of those that it is given are there. `tenant` None: whoever put them.
        `terms`: of who asks; the first of the keys is at their position.
        """
        deadline, brought = self._host.clock() + wait_s, 0
        way = BringUp(keys, after)
        read = self._peers.reading(terms)
        if read is not None:
            for place, key in enumerate(keys, start=terms.position):
                self._host.tier.expect(key, place)
        remote = await self._on_remote(way.beyond(self._is_near), deadline)

        def where(key: BlockKey) -> Tier | None:
            if key in self._host.tier:
                return Tier.HOST
            if self._disk is not None and key in self._disk:
                return Tier.DISK
            if key in self._peers:
                return Tier.PEER
            return Tier.REMOTE if key in remote else None

        while self._host.clock() < deadline:
            turn = way.next_turn(where, self._loads)
            if turn is None:
                break
            if read is not None and not await self._begin_reads(way, where, read, tenant, deadline):
                break
            brought += await self._carry_out(turn, tenant, deadline)
            way.held(keep(turn.keys))
        return brought

    async def _begin_reads(
        self,
        way: BringUp,
        where: Callable[[BlockKey], Tier | None],
        read: Reading,
        tenant: bytes | None,
        deadline: Seconds,
    ) -> bool:
        """Begin what this turn and the one after it read from peers, so that these encode and send
        the next while we decode this; whether it is worth it, or the rest is better computed."""
        now, then = way.next_turn(where, self._loads), way.turn_after(where, self._loads)
        for turn in (now, then):
            loads = [] if turn is None else [one for one in turn.begin if one.tier is Tier.PEER]
            if loads and turn is then and not read.keeps_up(loads[0].key):
                return True
            while loads:
                left = way.left if read.looks_ahead else [load.key for load in loads]
                there = [key for key in left if where(key) is Tier.PEER]
                ahead = [key for key in there if key not in self._loads]
                if not ahead:  # begun by others, or gone, while we waited
                    break
                chosen = read.choose(ahead, len(there) - len(ahead))
                if not chosen.blocks and loads[0].key in way.left[:BLOCKS_A_TURN]:
                    read.left(len(ahead))
                    return False
                some, loads = loads[: chosen.blocks], loads[chosen.blocks :]
                level, call = chosen.level, next(self._calls)
                begun = [self._begin(load, tenant, deadline, level, call) for load in some]
                if not all(begun) or not some:
                    return True
                if loads:  # to see how fast the peer is
                    await self._loaded([load.key for load in some], deadline)
        return True

    async def bring_up_own(self, keys: Sequence[BlockKey], wait_s: Seconds) -> None:
        """Have those of the keys that are on this store's disk in shared memory, wherever in their
        chains they are, as far as that takes no longer."""
        deadline = self._host.clock() + wait_s
        for key in keys:
            if key not in self._host.tier and key not in self._loads:
                self._begin(Load(key, None, Tier.DISK), None, deadline)
        await self._loaded(keys, deadline)

    async def take_in(self, records: Sequence[RecordedBlock], wait_s: Seconds) -> None:
        """Have these blocks of peers in shared memory, as far as that takes no longer."""
        deadline = self._host.clock() + wait_s
        for record in records:
            if record.key not in self._host.tier and record.key not in self._loads:
                fill = partial(self._of_peers, deadline=deadline, level=RAW)
                self._load(record, record.tenant, Tier.PEER, fill)
        await self._loaded([record.key for record in records], deadline)

    async def close(self) -> None:
        """Return when nothing is under way."""
        await asyncio.gather(*self._loads.values(), return_exceptions=True)

    def _is_near(self, key: BlockKey) -> bool:
        near = key in self._host.tier or (self._disk is not None and key in self._disk)
        return near or key in self._peers

    async def _on_remote(self, keys: Sequence[BlockKey], deadline: Seconds) -> Collection[BlockKey]:
        if self._remote is None or not keys:
            return ()
        return set(keys[: await self._remote.present(keys, deadline)])

    async def _carry_out(self, turn: Turn, tenant: bytes | None, deadline: Seconds) -> int:
        """Load what is missing, until the deadline; how many came."""
        for load in turn.begin:
            if load.key in self._loads or load.key in self._host.tier:
                continue
            if not self._begin(load, tenant, deadline):
                break
        await self._loaded(turn.missing, deadline)
        return sum(key in self._host.tier for key in turn.missing)

    async def _loaded(self, keys: Sequence[BlockKey], deadline: Seconds) -> None:
        """Wait for those that are on their way."""
        loads = {self._loads[key] for key in keys if key in self._loads}
        if loads:
            await asyncio.wait(loads, timeout=max(0.0, deadline - self._host.clock()))

    def _begin(
        self,
        load: Load,
        tenant: bytes | None,
        deadline: Seconds,
        level: str = RAW,
        call: int = 0,
    ) -> bool:
        """Whether it is on its way. A load that has begun ends, whoever waits for it. `call`: see
        `Peers.fill`."""
        source = self._source(load, tenant, deadline, level, call)
        if source is None:
            return False
        record, fill = source
        return self._load(record, record.tenant if tenant is None else tenant, load.tier, fill)

    def _load(self, record: RecordedBlock, owner: bytes, tier: Tier, fill: Fill) -> bool:
        """Whether there is a slot for it."""
        slot = self._host.tier.begin_put(record.key, record.parent, owner, self._host.clock())
        if isinstance(slot, Declined):
            return False

        async def run() -> None:
            came, pages = await fill(record, slot)
            self._arrived(slot, came, pages, tier)
            if tier is Tier.PEER:
                self._stays(record.key)

        task = self._loads[record.key] = self._spawn(run())
        task.add_done_callback(lambda _: self._loads.pop(record.key))
        return True

    def _stays(self, key: BlockKey) -> None:
        """A copy would be the first to go again, before who waits for it has had its turn."""
        held = self._host.hold(key, _HOLDER)
        if held is not None:
            asyncio.get_running_loop().call_later(STAYS_S, self._host.release, held)

    def _source(
        self, load: Load, tenant: bytes | None, deadline: Seconds, level: str, call: int
    ) -> tuple[RecordedBlock, Fill] | None:
        """What is read, and how; None: it went meanwhile."""
        if load.tier is Tier.DISK:
            record = self._disk.record(load.key) if self._disk is not None else None
            if record is None or self._disk is None:
                return None
            return record, partial(_exact, self._disk.fill)
        record = RecordedBlock(key=load.key, parent=load.parent, tenant=tenant or _NOBODY)
        if load.tier is Tier.PEER:
            return record, partial(self._of_peers, deadline=deadline, level=level, call=call)
        assert self._remote is not None
        return record, partial(_exact, partial(self._remote.fill, deadline=deadline))

    async def _of_peers(
        self, record: RecordedBlock, slot: Slot, *, deadline: Seconds, level: str, call: int = 0
    ) -> tuple[RecordedBlock, Pages | None]:
        """What came says of itself whether it is to the bit what was put."""
        filled = await self._peers.fill(record, slot, deadline, level, call)
        if filled is None:
            return record, None
        return replace(record, lineage=filled.lineage), filled.pages


async def _exact(
    fill: Callable[[RecordedBlock, Slot], Awaitable[Pages | None]],
    record: RecordedBlock,
    slot: Slot,
) -> tuple[RecordedBlock, Pages | None]:
    return record, await fill(record, slot)
