"""Another store's stream to this one: it hears what is here, reads it, and says what is to come."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from antiphon.core.kv.block_keys import KEY_BYTES
from antiphon.core.store_pool import RAW
from antiphon.errors import PeerError
from antiphon.live.kv_journal import KvFeed
from antiphon.live.store.telling import tell_kv
from antiphon.live.store.tiered_blocks import TieredBlocks
from antiphon.types import (
    BlockKey,
    Forget,
    KvReplay,
    LeaseId,
    LentBlock,
    PlacedBlock,
    PoolClear,
    PoolLent,
    PoolPlace,
    PoolRead,
    Release,
    Seconds,
    StoreAnswer,
    StoreName,
)
from antiphon.types.store_pool_config import LEVELS
from antiphon.wire import Frame, FrameError, FrameStream, Kind, decode

from .encoded_lender import EncodedLender

MOST_READS = 64
"""So many of one store may wait for an answer, clears among them; more are answered with nothing at
once."""
MOST_KEYS = 256
"""In one read, or one message of blocks to place."""
_MOST_POSITION = 2**32
_MOST_TOKENS = 2**31
"""Before a block that is encoded."""
_MOST_TENANT_BYTES, _MOST_NUMERICS_CHARS = 64, 256


class PoolSession:
    """Of one stream. `placed` hears of blocks that this store is home to; `on_over` is called once,
    when the stream is over."""

    def __init__(  # noqa: PLR0913  what it serves, and who hears of it
        self,
        peer: StoreName,
        holder: str,
        blocks: TieredBlocks,
        feed: KvFeed,
        *,
        lease_ttl_s: Seconds,
        placed: Callable[[StoreName, tuple[PlacedBlock, ...]], None],
        encoded: EncodedLender | None = None,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        on_over: Callable[["PoolSession"], None],
    ) -> None:
        """`holder` names its leases: no other stream's."""
        self.peer = peer
        self._holder = holder
        self._blocks = blocks
        self._feed = feed
        self._lease_ttl_s = lease_ttl_s
        self._placed = placed
        self._encoded = encoded
        self._spawn = spawn
        self._on_over = on_over
        self._stream: FrameStream | None = None
        self._telling: asyncio.Task[None] | None = None
        self._reads: set[asyncio.Task[None]] = set()

    def begin(self, stream: FrameStream) -> None:
        """The stream is open, and the peer has been welcomed."""
        self._stream = stream
        self._telling = self._spawn(tell_kv(stream, self._feed))

    def end(self, reason: str) -> None:
        """Nobody reads here any more."""
        if self._stream is not None:
            self._stream.end(reason)

    def over(self) -> None:
        """The stream is over. What is being read from here now is read to its end, or not."""
        for task in (*self._reads, *([self._telling] if self._telling else [])):
            task.cancel()
        self._blocks.abandon(self._holder)
        self._on_over(self)

    def heard(self, stream: FrameStream, frame: Frame) -> None:
        """One message came. Raises `FrameError` if it may not."""
        match decode(frame):
            case None:
                pass  # a heartbeat
            case KvReplay() as wish:
                self._feed.kv_replay(wish)
            case PoolRead() as read:
                self._begin_read(stream, read, frame.number)
            case PoolPlace(blocks=blocks):
                _check_placed(blocks)
                self._placed(self.peer, blocks)
            case PoolClear() as clear:
                _check_keys(clear.keys or ())
                self._begin_clear(stream, clear, frame.number)
            case Forget(keys=keys):
                _check_keys(keys)
                self._blocks.doubt_here(keys)
            case Release(lease=lease):
                self._release(lease)
            case other:
                raise FrameError(f"a store may not say {type(other).__name__} here")

    def _begin_read(self, stream: FrameStream, read: PoolRead, number: int) -> None:
        if not 0 <= read.wait_s < math.inf:
            raise FrameError(f"nobody can wait for {read.wait_s} s")
        if len(read.keys) > MOST_KEYS:
            raise FrameError(f"{len(read.keys)} blocks in one read, at most {MOST_KEYS} may be")
        _check_keys(read.keys)
        _check_level(read, self._blocks.tenancy.kv.block_tokens)
        if len(self._reads) >= MOST_READS:
            self._answer(stream, (), number)
            return
        disk = self._blocks.disk
        on_disk = disk is not None and any(key in disk for key in read.keys)
        encodes = read.level != RAW and self._encoded is not None
        if not on_disk and not encodes:
            self._answer(stream, read.keys, number)
            return

        until = asyncio.get_running_loop().time() + read.wait_s

        async def answer() -> None:
            if on_disk:
                await self._blocks.bringing_up.bring_up_own(read.keys, read.wait_s)
            if encodes:
                wait_s = max(0.0, until - asyncio.get_running_loop().time())
                await self._answer_encoded(stream, read, number, wait_s)
            else:
                self._answer(stream, read.keys, number)

        task = self._spawn(answer())
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    def _begin_clear(self, stream: FrameStream, clear: PoolClear, number: int) -> None:
        """An operator asked one store of the pool: this is for ours."""
        if len(self._reads) >= MOST_READS:
            answer = StoreAnswer(blocks=0, problem=f"{MOST_READS} calls of this store wait here")
            with suppress(PeerError):
                stream.send(Kind.STORE_ANSWER, answer, number)
            return

        async def run() -> None:
            count, all_asked = await self._blocks.clear(clear.tenant, clear.keys)
            problem = "" if all_asked else "its remote tier could not be asked"
            with suppress(PeerError):
                stream.send(Kind.STORE_ANSWER, StoreAnswer(blocks=count, problem=problem), number)

        task = self._spawn(run())
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    def _answer(self, stream: FrameStream, keys: tuple[BlockKey, ...], number: int) -> None:
        lease, blocks = self._lent(keys)
        self._send(stream, PoolLent(lease=lease, ttl_s=self._lease_ttl_s, blocks=blocks), number)

    async def _answer_encoded(
        self, stream: FrameStream, read: PoolRead, number: int, wait_s: Seconds
    ) -> None:
        """What can't be encoded, or not within `wait_s`, is lent as it is. The lease that is said
        begins once it is said; another keeps the blocks until then."""
        assert self._encoded is not None
        before, blocks = self._lent(read.keys)
        there = {block.key for block in blocks}
        size = self._blocks.tenancy.kv.block_tokens
        starts = {
            key: position * size
            for key, position in zip(read.keys, read.positions, strict=True)
            if key in there
        }
        try:
            names, seconds = await self._encoded.encode(read.level, starts, wait_s)
            lease, blocks = self._lent(read.keys)
        finally:
            if before is not None:
                self._release(before)
        coded = {}
        if lease is not None:
            keys = {block.key for block in blocks}
            mine = [name for name in names if name.key in keys]
            coded = self._encoded.lend(mine, lease, self._lease_ttl_s)
        lent = PoolLent(
            lease=lease,
            ttl_s=self._lease_ttl_s,
            blocks=tuple(coded.get(block.key, block) for block in blocks),
            encode_s=sum(seconds),
            encoded=len(seconds),
        )
        self._send(stream, lent, number)

    def _lent(self, keys: tuple[BlockKey, ...]) -> tuple[LeaseId | None, tuple[LentBlock, ...]]:
        """What is here to the bit: a copy of lossy KV is never passed on."""
        lease, slots = self._blocks.lend(keys, self._holder) if keys else (None, {})
        sealed = {key: self._blocks.memory.sealed(slot) for key, slot in slots.items()}
        exact = {
            key: one
            for key, one in sealed.items()
            if one.record.key == key and not one.record.lineage
        }
        if lease is not None and not exact:
            self._blocks.release(lease)
            lease = None
        return lease, tuple(LentBlock(key=key, pages=one.pages) for key, one in exact.items())

    def _send(self, stream: FrameStream, lent: PoolLent, number: int) -> bool:
        """Whether it was."""
        try:
            stream.send(Kind.POOL_LENT, lent, number)
        except PeerError:
            if lent.lease is not None:  # the peer is gone, or can't be told
                self._release(lent.lease)
            return False
        return True

    def _release(self, lease: LeaseId) -> None:
        self._blocks.release(lease)
        if self._encoded is not None:
            self._encoded.release(lease)


def _check_keys(keys: tuple[BlockKey, ...]) -> None:
    if any(len(key) != KEY_BYTES for key in keys):
        raise FrameError(f"a block's key has not {KEY_BYTES} bytes")


def _check_level(read: PoolRead, block_tokens: int) -> None:
    if read.level not in LEVELS:
        raise FrameError(f"{read.level!r:.40} is no level of a block")
    if read.level == RAW:
        return
    if len(read.positions) != len(read.keys) or any(
        not 0 <= position * block_tokens < _MOST_TOKENS for position in read.positions
    ):
        raise FrameError("blocks to encode need a position each that can be one")


def _check_placed(blocks: tuple[PlacedBlock, ...]) -> None:
    if len(blocks) > MOST_KEYS:
        raise FrameError(f"{len(blocks)} blocks to place, at most {MOST_KEYS} may be")
    for block in blocks:
        _check_keys((block.key, block.parent or block.key))
        if not 0 <= block.position < _MOST_POSITION:
            raise FrameError(f"no block is number {block.position} of its prompt")
        if len(block.tenant) > _MOST_TENANT_BYTES or len(block.numerics) > _MOST_NUMERICS_CHARS:
            raise FrameError("a name of a block to place is too long")
