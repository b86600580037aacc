"""Blocks on their way from slower tiers into shared memory, for those who look for them."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, TypeAlias

from antiphon.core.tiers import Declined, Slot
from antiphon.store.record import RecordedBlock
from antiphon.types import BlockKey, OfferedPage, Seconds, Tier

from .disk_blocks import DiskBlocks
from .host_memory import HostBlocks
from .remote_blocks import RemoteBlocks

AT_ONCE = 8
"""Blocks that one caller reads before it is another's turn."""
_NOBODY = b""

Arrived: TypeAlias = Callable[[Slot, RecordedBlock, tuple[OfferedPage, ...] | None, Tier], object]
"""A slot was filled from that tier, or (None) could not be."""


class BringingUp:
    """Loads that are under way. Whoever looks for a block that is on its way waits for the same."""

    def __init__(
        self,
        host: HostBlocks,
        disk: DiskBlocks | None,
        remote: RemoteBlocks | None,
        *,
        arrived: Arrived,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self._host = host
        self._disk = disk
        self._remote = remote
        self._arrived = arrived
        self._spawn = spawn
        self._loads: dict[BlockKey, asyncio.Task[None]] = {}

    @property
    def possible(self) -> bool:
        """Whether there are slower tiers at all."""
        return self._disk is not None or self._remote is not None

    async def bring_up(
        self,
        keys: Sequence[BlockKey],
        after: BlockKey | None,
        tenant: bytes | None,
        wait_s: Seconds,
        keep: Callable[[Sequence[BlockKey]], int],
    ) -> int:
        """Have as long a prefix of the keys as can be in shared memory within `wait_s`; how many
        blocks were read for it.

        `after` is the block that the first of them continues. `keep` is to hold blocks that came,
        and returns how many of those that it is given are there. `tenant` None: whoever put them.
        """
        deadline = self._host.clock() + wait_s
        remote = await self._there(keys, deadline)
        brought = 0
        for start in range(0, len(keys), AT_ONCE):
            if self._host.clock() >= deadline:
                break
            part = keys[start : start + AT_ONCE]
            parents = [keys[start - 1] if start else after, *part[:-1]]
            wanted = list(zip(part, parents, strict=True))
            brought += await self._load(wanted, tenant, remote, deadline)
            if keep(part) < len(part):
                break
        return brought

    async def close(self) -> None:
        """Return when nothing is under way."""
        await asyncio.gather(*self._loads.values(), return_exceptions=True)

    async def _there(self, keys: Sequence[BlockKey], deadline: Seconds) -> Collection[BlockKey]:
        """Those behind what is here that the remote tier has."""
        if self._remote is None:
            return ()
        disk = self._disk if self._disk is not None else ()
        near = list(takewhile(lambda key: key in self._host.tier or key in disk, keys))
        rest = keys[len(near) :]
        if not rest:
            return ()
        return set(rest[: await self._remote.present(rest, deadline)])

    async def _load(
        self,
        wanted: Sequence[tuple[BlockKey, BlockKey | None]],
        tenant: bytes | None,
        remote: Collection[BlockKey],
        deadline: Seconds,
    ) -> int:
        """Those that are not in memory, until the deadline; how many came."""
        missing = [(key, parent) for key, parent in wanted if key not in self._host.tier]
        for key, parent in missing:
            if key not in self._loads and not self._begin(key, parent, tenant, remote, deadline):
                break
        loads = {self._loads[key] for key, _ in missing if key in self._loads}
        if loads:
            await asyncio.wait(loads, timeout=max(0.0, deadline - self._host.clock()))
        return sum(key in self._host.tier for key, _ in missing)

    def _begin(
        self,
        key: BlockKey,
        parent: BlockKey | None,
        tenant: bytes | None,
        remote: Collection[BlockKey],
        deadline: Seconds,
    ) -> bool:
        """Whether it is on its way. A load that has begun ends, whoever waits for it."""
        record = self._disk.record(key) if self._disk is not None else None
        if self._disk is not None and record is not None:
            fill, where = self._disk.fill, Tier.DISK
        elif self._remote is not None and key in remote:
            fill, where = partial(self._remote.fill, deadline=deadline), Tier.REMOTE
            record = RecordedBlock(key=key, parent=parent, tenant=tenant or _NOBODY)
        else:
            return False
        owner = record.tenant if tenant is None else tenant
        slot = self._host.tier.begin_put(key, record.parent, owner, self._host.clock())
        if isinstance(slot, Declined):
            return False

        async def load() -> None:
            self._arrived(slot, record, await fill(record, slot), where)

        task = self._loads[key] = self._spawn(load())
        task.add_done_callback(lambda _: self._loads.pop(key))
        return True
