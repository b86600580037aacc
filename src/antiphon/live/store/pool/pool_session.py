"""Another store's stream to this one: it hears what is here, reads it, and says what is to come."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from antiphon.core.kv.block_keys import KEY_BYTES
from antiphon.errors import PeerError
from antiphon.live.kv_journal import KvFeed
from antiphon.live.store.telling import tell_kv
from antiphon.live.store.tiered_blocks import TieredBlocks
from antiphon.types import (
    BlockKey,
    Forget,
    KvReplay,
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
from antiphon.wire import Frame, FrameError, FrameStream, Kind, decode

MOST_READS = 64
"""So many of one store may wait for an answer, clears among them; more are answered with nothing at
once."""
MOST_KEYS = 256
"""In one read, or one message of blocks to place."""
_MOST_POSITION = 2**32
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
                self._blocks.release(lease)
            case other:
                raise FrameError(f"a store may not say {type(other).__name__} here")

    def _begin_read(self, stream: FrameStream, read: PoolRead, number: int) -> None:
        if not 0 <= read.wait_s < math.inf:
            raise FrameError(f"nobody can wait for {read.wait_s} s")
        if len(read.keys) > MOST_KEYS:
            raise FrameError(f"{len(read.keys)} blocks in one read, at most {MOST_KEYS} may be")
        _check_keys(read.keys)
        if len(self._reads) >= MOST_READS:
            self._answer(stream, (), number)
            return
        disk = self._blocks.disk
        if disk is None or not any(key in disk for key in read.keys):
            self._answer(stream, read.keys, number)
            return

        async def bring_up() -> None:
            await self._blocks.bringing_up.bring_up_own(read.keys, read.wait_s)
            self._answer(stream, read.keys, number)

        task = self._spawn(bring_up())
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
        lease, slots = self._blocks.lend(keys, self._holder) if keys else (None, {})
        sealed = {key: self._blocks.memory.sealed(slot) for key, slot in slots.items()}
        lent = PoolLent(
            lease=lease,
            ttl_s=self._lease_ttl_s,
            blocks=tuple(
                LentBlock(key=key, pages=one.pages)
                for key, one in sealed.items()
                if one.record.key == key
            ),
        )
        try:
            stream.send(Kind.POOL_LENT, lent, number)
        except PeerError:
            if lease is not None:  # the peer is gone, or can't be told
                self._blocks.release(lease)


def _check_keys(keys: tuple[BlockKey, ...]) -> None:
    if any(len(key) != KEY_BYTES for key in keys):
        raise FrameError(f"a block's key has not {KEY_BYTES} bytes")


def _check_placed(blocks: tuple[PlacedBlock, ...]) -> None:
    if len(blocks) > MOST_KEYS:
        raise FrameError(f"{len(blocks)} blocks to place, at most {MOST_KEYS} may be")
    for block in blocks:
        _check_keys((block.key, block.parent or block.key))
        if not 0 <= block.position < _MOST_POSITION:
            raise FrameError(f"no block is number {block.position} of its prompt")
        if len(block.tenant) > _MOST_TENANT_BYTES or len(block.numerics) > _MOST_NUMERICS_CHARS:
            raise FrameError("a name of a block to place is too long")
