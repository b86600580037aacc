"""One worker's stream to the store: what it puts, what it looks for, and its leases."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from antiphon.core.kv.block_keys import KEY_BYTES
from antiphon.core.store_pool import FetchTerms
from antiphon.core.tiers import Slot
from antiphon.errors import PeerError
from antiphon.types import (
    BlockKey,
    Forget,
    LeaseId,
    Locate,
    Located,
    Put,
    PutBlock,
    Release,
    Seconds,
)
from antiphon.wire import Frame, FrameError, FrameStream, Kind, decode

from .host_memory import SealedBlock
from .tiered_blocks import Source, TieredBlocks

MOST_LOCATES = 64
"""So many of one worker may wait for an answer; more are answered with nothing at once."""
MOST_PAGES_LOCATED = 2**19
"""What an answer has room for; of longer prompts the beginning is found."""
_MOST_TENANT_BYTES = 64
_MOST_POSITION = 2**32


class WorkerSession:
    """Implements `port.Caller`. `on_over` is called once, when nothing of it is left. `lineage`: of
    the worker's KV; empty: it gets exact KV only."""

    def __init__(
        self,
        source: Source,
        blocks: TieredBlocks,
        *,
        lineage: bytes = b"",
        lease_ttl_s: Seconds,
        longest_wait_s: Seconds,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        on_over: Callable[["WorkerSession"], None],
    ) -> None:
        self.source = source
        self._blocks = blocks
        self._lineage = lineage
        self._lease_ttl_s = lease_ttl_s
        self._longest_wait_s = longest_wait_s
        self._spawn = spawn
        self._on_over = on_over
        self._locates: set[asyncio.Task[None]] = set()
        self._slot_pages = blocks.memory.slot_pages
        self.tenancy = blocks.tenancy
        self._most_keys = max(1, MOST_PAGES_LOCATED // self._slot_pages)

    def begin(self, stream: FrameStream) -> None:
        """See `Caller`: a worker speaks first."""

    def over(self) -> None:
        """See `Caller`. What is copied out of the worker's memory now is copied to its end."""
        for task in self._locates:
            task.cancel()
        self._blocks.forget(self.source)
        self.source.memory.close()
        self._on_over(self)

    def heard(self, stream: FrameStream, frame: Frame) -> None:
        """See `Caller`."""
        match decode(frame):
            case None:
                pass  # a heartbeat
            case Put(tenant=tenant, blocks=blocks):
                for block in blocks:
                    self._check(block)
                self._blocks.put(self.source, _tenant(tenant), blocks)
            case Forget(keys=keys):
                if any(len(key) != KEY_BYTES for key in keys):
                    raise FrameError(f"a block's key has not {KEY_BYTES} bytes")
                self._blocks.doubt(keys)
            case Locate() as locate:
                self._begin_locate(stream, locate, frame.number)
            case Release(lease=lease):
                self._blocks.release(lease)
            case other:
                raise FrameError(f"a worker may not say {type(other).__name__} here")

    def _check(self, block: PutBlock) -> None:
        if len(block.key) != KEY_BYTES or len(block.parent or block.key) != KEY_BYTES:
            raise FrameError(f"a block's key has not {KEY_BYTES} bytes")
        if len(block.pages) != self._slot_pages:
            raise FrameError(f"a block has {self._slot_pages} pages, not {len(block.pages)}")

    # ── Locate ───────────────────────────────────────────────────────────────────────────────

    def _begin_locate(self, stream: FrameStream, locate: Locate, number: int) -> None:
        tenant = _tenant(locate.tenant)
        if not 0 <= locate.wait_s < math.inf:
            raise FrameError(f"nobody can wait for {locate.wait_s} s")
        terms = self._terms(locate)
        if not locate.keys or len(self._locates) >= MOST_LOCATES:
            stream.send(Kind.LOCATED, Located(lease=None, ttl_s=0.0, blocks=()), number)
            return
        keys = locate.keys[: self._most_keys]
        lease, slots = self._blocks.read(keys, self.source.name)
        if self._blocks.is_all(keys, slots):
            self._answer(stream, number, keys, (lease, slots, 0))
            return
        wait_s = min(locate.wait_s, self._longest_wait_s)

        async def bring_up() -> None:
            found = await self._blocks.bring_up(
                keys, lease, slots, tenant, wait_s, self.source.name, terms
            )
            self._answer(stream, number, keys, found)

        task = self._spawn(bring_up())
        self._locates.add(task)
        task.add_done_callback(self._locates.discard)

    def _answer(
        self,
        stream: FrameStream,
        number: int,
        keys: Sequence[BlockKey],
        found: tuple[LeaseId | None, tuple[Slot, ...], int],
    ) -> None:
        lease, slots, from_disk = found
        there = tuple(self._there(keys, slots))
        located = Located(
            lease=lease,
            ttl_s=self._lease_ttl_s,
            blocks=tuple(one.pages for one in there),
            from_disk=from_disk,
            lossy=tuple(at for at, one in enumerate(there) if one.record.lineage),
        )
        try:
            stream.send(Kind.LOCATED, located, number)
        except PeerError:
            if lease is not None:  # the worker is gone, or can't be told
                self._blocks.release(lease)

    def _there(self, keys: Sequence[BlockKey], slots: Sequence[Slot]) -> Iterator[SealedBlock]:
        """Each block, as far as that very block lies in its slot, and may be given to the worker:
        to the bit, or as lossy as all that it has."""
        for key, slot in zip(keys, slots, strict=False):
            sealed = self._blocks.memory.sealed(slot)
            if sealed.record.key != key or sealed.record.lineage not in (b"", self._lineage):
                return
            yield sealed

    def _terms(self, locate: Locate) -> FetchTerms:
        """Raises `FrameError` for numbers that can't be."""
        left_s, compute_s = locate.left_s, locate.compute_s
        if left_s is not None and math.isnan(left_s):
            raise FrameError("the time that is left is no number")
        if compute_s is not None and not 0 <= compute_s < math.inf:
            raise FrameError(f"nobody computes for {compute_s} s")
        if not 0 <= locate.position < _MOST_POSITION:
            raise FrameError(f"no block is number {locate.position} of its prompt")
        return FetchTerms(
            lineage=self._lineage,
            position=locate.position,
            due=math.inf if left_s is None else self._blocks.now() + left_s,
            compute_s=None if compute_s is None else compute_s / max(1, len(locate.keys)),
        )


def _tenant(tenant: bytes) -> bytes:
    if len(tenant) > _MOST_TENANT_BYTES:
        raise FrameError(f"a tenant's name has at most {_MOST_TENANT_BYTES} bytes")
    return tenant
