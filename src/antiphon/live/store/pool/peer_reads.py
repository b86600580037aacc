"""Blocks that are read from one peer: those of a turn that are wanted at once, at one level, go in
one call, so that while they come the next turn is asked for.

Encoded ones in calls of a few: while some are decoded the next are on their way, and those behind
them are encoded.

wanted ─┐                                   ┌─ PageClient ─ checked ─► sealed in its slot
wanted ─┼─► PoolRead ──► PoolLent (pages) ──┼─ EncodedPull ─ decoded ─► sealed in its slot
wanted ─┘                                   └─ not lent, late, other bytes ─► None: a miss
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from antiphon.core.said_of_links import told_problem
from antiphon.core.store_pool import RAW, LevelBook, ReadLevel, Sender, Sources, StorePool
from antiphon.core.tiers import BLOCKS_A_TURN, Slot
from antiphon.errors import PeerError
from antiphon.live.path_uses import path_uses
from antiphon.live.store.host_memory import HostMemory
from antiphon.live.store.peers import Filled
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import (
    BlockKey,
    LentBlock,
    OfferedPage,
    PagePull,
    PathUse,
    PeerState,
    PoolLent,
    PoolPeer,
    Seconds,
)

from .answer_time import AnswerTime
from .encoded_lender import THREADS
from .encoded_pages import PAGE_BYTES
from .encoded_pull import Encoded, EncodedPull
from .pool_link import PoolLink
from .pull_speed import Moving, PullSpeed

BLOCKS_AT_ONCE = 64
_ANSWER_SHARE = 0.5
"""Of a read's time: so long the peer may bring blocks up from its disk."""
_CODING_PATIENCE = 4.0
"""So many times what encoding and decoding should take may pass, beside the transfer."""

_CLOCK_STEP_S = 0.1
"""So much more a lender's threads may have counted than they had."""

_AS_IT_IS = ReadLevel()

Pages = tuple[OfferedPage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    key: BlockKey
    slot: Slot
    deadline: Seconds
    level: str
    position: int
    call: int
    filled: "asyncio.Future[Filled | None]"


@dataclass(frozen=True, slots=True)
class _Plain:
    """A block that is lent as it is, and the slot that it is for."""

    lent: LentBlock
    slot: Slot


class PeerReads:
    """From one life of a peer. `threads` wait for data; `client`, and `encoded` (None: the peer
    lends blocks as they are only), belong to this from now on. `read_level`: what both sides'
    settings come to."""

    def __init__(  # noqa: PLR0913  where blocks come from, where they go, and who counts
        self,
        link: PoolLink,
        client: PageClient,
        memory: HostMemory,
        sources: Sources,
        book: LevelBook,
        encoded: EncodedPull | None = None,
        read_level: ReadLevel = _AS_IT_IS,
        *,
        threads: Executor,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        clock: Callable[[], Seconds],
    ) -> None:
        self.read_level = read_level
        self._link = link
        self._client = client
        self._encoded = encoded
        self._memory = memory
        self._sources = sources
        self._book = book
        self._threads = threads
        self._spawn = spawn
        self._clock = clock
        self._name = link.address.name
        self._wanted: list[_Wanted] = []
        self._running: set[asyncio.Task[None]] = set()
        self._speed = PullSpeed(clock)
        self._answers = AnswerTime()

    def bytes_per_s(self) -> float | None:
        """How fast the peer sends, as it was measured last; None: nothing has come yet."""
        return self._speed.bytes_per_s()

    def sender(self) -> Sender:
        """As it is known now. Does not mutate."""
        bytes_per_s = self._speed.bytes_per_s()
        return Sender(
            name=self._name,
            bytes_per_s=bytes_per_s or self._sources.least_bytes_per_s(self._name),
            measured=bytes_per_s is not None,
            old=self._speed.is_old(),
            answer_s=self._answers.least_s(),
        )

    async def read(
        self,
        key: BlockKey,
        slot: Slot,
        deadline: Seconds,
        level: str = RAW,
        position: int = 0,
        call: int = 0,
    ) -> Filled | None:
        """Have the block in a slot that is the caller's; None: it did not come by then. The slot is
        not touched any more when this returns. `position`: how many blocks are before it in its
        chain; a peer that can't encode lends the block as it is. `call`: see `Peers.fill`."""
        loop = asyncio.get_running_loop()
        level = self._book.level_for(self._name, level) if self._encoded is not None else RAW
        wanted = _Wanted(key, slot, deadline, level, position, call, loop.create_future())
        self._wanted.append(wanted)
        if len(self._wanted) == 1:
            loop.call_soon(self._flush)
        return await asyncio.shield(wanted.filled)

    def paths(self) -> tuple[PathUse, ...]:
        """The ways to it."""
        return path_uses(self._client)

    async def close(self) -> None:
        """The peer is gone: what is under way comes to nothing, or has come."""
        await asyncio.to_thread(self._client.close)
        if self._encoded is not None:
            await self._encoded.close()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _flush(self) -> None:
        wanted, self._wanted = self._wanted, []
        for call, level in dict.fromkeys((one.call, one.level) for one in wanted):
            mine = [one for one in wanted if (one.call, one.level) == (call, level)]
            size = BLOCKS_AT_ONCE if level == RAW else BLOCKS_A_TURN
            for first in range(0, len(mine), size):
                task = self._spawn(self._read(mine[first : first + size], level))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _read(self, batch: Sequence[_Wanted], level: str) -> None:
        """All of them end, whatever happens."""
        try:
            come = await self._come(batch, level)
            self._link.read.blocks += len(come)
            self._link.read.bytes += len(come) * self._memory.slot_bytes
            for one in batch:
                one.filled.set_result(come.get(one.key))
        finally:
            for one in batch:
                if not one.filled.done():
                    one.filled.set_result(None)

    async def _come(self, batch: Sequence[_Wanted], level: str) -> dict[BlockKey, Filled]:
        size, began = self._expected_bytes(batch, level), self._clock()
        most_s = max(one.deadline for one in batch) - began
        encode_s = self._book.encode_s(level, len(batch), self._name)
        coding_s = encode_s + self._book.decode_s(level, len(batch))
        patience_s = self._sources.patience_s(self._name, size, most_s)
        ends_at = began + min(most_s, patience_s + _CODING_PATIENCE * coding_s)
        moving = Moving(self._speed)
        self._sources.asked(self._name, size)
        try:
            answer = await self._lent(batch, level, ends_at)
            size, ends_at = self._known(answer, level, size, began + most_s)
            try:
                come, tried = await self._pulled(batch, answer, level, ends_at, moving)
            finally:
                if answer.lease is not None:
                    self._link.release(answer.lease)
        except PeerError:
            self._failed(size)
            return {}
        except BaseException:
            self._sources.missed(self._name, size)
            raise
        self._settle(size, len(come), tried, moving)
        return come

    def _expected_bytes(self, batch: Sequence[_Wanted], level: str) -> int:
        raw = level == RAW
        return len(batch) * (self._memory.slot_bytes if raw else self._book.block_bytes(level))

    def _known(
        self, answer: PoolLent, level: str, asked_bytes: int, deadline: Seconds
    ) -> tuple[int, Seconds]:
        """How much it is that comes, and until when it may take: what was asked was an estimate,
        and the peer may lend as it is what was to be encoded."""
        encoded = [len(one.pages) for one in answer.blocks if one.encoded_bytes]
        raw = len(answer.blocks) - len(encoded)
        size = raw * self._memory.slot_bytes + sum(encoded) * PAGE_BYTES
        self._sources.turned_out(self._name, asked_bytes, size)
        now = self._clock()
        patience_s = self._sources.patience_s(self._name, 0, deadline - now)
        decode_s = self._book.decode_s(level, len(encoded))
        return size, min(deadline, now + patience_s + _CODING_PATIENCE * decode_s)

    def _settle(self, size: int, come: int, tried: int, moving: Moving) -> None:
        """What the peer is worth from now on, by those that it was asked for: what found no room
        here is no fault of its own."""
        if come < tried:
            self._failed(size, moving.size_bytes, moving.seconds)
        elif not tried:
            self._sources.missed(self._name, size)
        else:
            self._sources.turned_out(self._name, size, moving.size_bytes)
            self._sources.came(self._name, moving.size_bytes, moving.seconds)

    def _failed(self, size: int, came_bytes: int = 0, took_s: Seconds = 0.0) -> None:
        self._link.read.failed += 1
        now = self._clock()
        self._sources.failed(self._name, size, now, came_bytes=came_bytes, took_s=took_s)

    async def _lent(self, batch: Sequence[_Wanted], level: str, ends_at: Seconds) -> PoolLent:
        """What of it the peer has, under which lease. Raises `PeerError`."""
        left_s = ends_at - self._clock()
        if left_s <= 0:
            raise PeerError("there is no time left to ask")
        positions = {one.key: one.position for one in batch}
        began = self._clock()
        answer = await self._link.borrow(positions, _ANSWER_SHARE * left_s, left_s, level=level)
        took_s = self._clock() - began
        most_s = THREADS * took_s + _CLOCK_STEP_S
        wrong = self._wrong(positions, level, answer)
        if problem := wrong or wrong_encoding(answer, len(positions), most_s):
            if answer.lease is not None:
                self._link.release(answer.lease)
            raise PeerError(problem)
        self._answers.answered(took_s, answer.encoded)
        return answer

    def _wrong(self, wanted: dict[BlockKey, int], level: str, answer: PoolLent) -> str:
        """Why the answer is none; empty: it is one."""
        keys = [block.key for block in answer.blocks]
        if len(keys) != len(set(keys)) or not wanted.keys() >= set(keys):
            return "it lends what nobody asked for"
        for block in answer.blocks:
            if block.encoded_bytes:
                if level == RAW or Encoded(block, 0).wrong(self._memory.slot_bytes):
                    return "it lends an encoded block that can't be one"
            elif len(block.pages) != self._memory.slot_pages:
                return "it lends what nobody asked for"
        if answer.lease is None and answer.blocks:
            return "it lends without a lease"
        return ""

    async def _pulled(
        self,
        batch: Sequence[_Wanted],
        answer: PoolLent,
        level: str,
        ends_at: Seconds,
        moving: Moving,
    ) -> tuple[dict[BlockKey, Filled], int]:
        """Those that came and are what was lent, and how many were tried. Nothing is written any
        more when it returns."""
        slots = {one.key: one.slot for one in batch}
        raw = [_Plain(one, slots[one.key]) for one in answer.blocks if not one.encoded_bytes]
        encoded = [Encoded(one, slots[one.key]) for one in answer.blocks if one.encoded_bytes]
        timeout_s = max(0.001, ends_at - self._clock())
        if level != RAW:
            self._book.encoded_there(level, answer.encoded, answer.encode_s, self._name)
        plain, coded = await asyncio.gather(
            self._pull_raw(raw, timeout_s, moving),
            self._pull_encoded(encoded, level, timeout_s, moving),
        )
        return {**plain, **coded[0]}, len(raw) + coded[1]

    async def _pull_raw(
        self, blocks: Sequence[_Plain], timeout_s: Seconds, moving: Moving
    ) -> dict[BlockKey, Filled]:
        if not blocks:
            return {}
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._pull, blocks, timeout_s, moving)
        try:
            come = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        self._book.came(RAW, len(come), len(come) * self._memory.slot_bytes)
        return come

    async def _pull_encoded(
        self, blocks: Sequence[Encoded], level: str, timeout_s: Seconds, moving: Moving
    ) -> tuple[dict[BlockKey, Filled], int]:
        if not blocks or self._encoded is None:
            return {}, 0
        pulled = await self._encoded.pull(blocks, level, timeout_s, self._threads, moving)
        pages = sum(len(one.lent.pages) for one in blocks if one.lent.key in pulled.came)
        self._book.came(level, len(pulled.came), pages * PAGE_BYTES)
        lineage = self._book.lineage_of(level)
        come = {key: Filled(pages, lineage) for key, pages in pulled.came.items()}
        return come, len(blocks) if pulled.tried else 0

    def _pull(
        self, blocks: Sequence[_Plain], timeout_s: Seconds, moving: Moving
    ) -> dict[BlockKey, Filled]:
        """On a thread. A block that is late has told `moving`, too, how fast the peer is."""
        count = self._memory.slot_pages
        pulls = [
            PagePull(page, one.slot * count + number)
            for one in blocks
            for number, page in enumerate(one.lent.pages)
        ]
        page_bytes = self._memory.slot_bytes // count
        good = moving.pull(self._client, pulls, timeout_s, page_bytes)
        come: dict[BlockKey, Filled] = {}
        for at, one in enumerate(blocks):
            if all(good[at * count : (at + 1) * count]):
                first = one.slot * count
                sealed = self._memory.region.seal(range(first, first + count))
                lent = [page.checksum for page in one.lent.pages]
                if [page.checksum for page in sealed] == lent:
                    come[one.lent.key] = Filled(sealed)
        return come


def wrong_encoding(answer: PoolLent, blocks: int, most_s: Seconds) -> str:
    """Why what it says of encoding can't be, `blocks` being wanted and threads having had so long;
    empty: it can."""
    if not 0 <= answer.encoded <= blocks:
        return f"it has encoded {answer.encoded} of {blocks} blocks"
    if not 0.0 <= answer.encode_s <= most_s:  # not a number is neither
        return f"it has encoded for {answer.encode_s:g} s, in which nobody waited that long"
    return ""


def peer_view(link: PoolLink, reads: PeerReads | None, pool: StorePool, now: Seconds) -> PoolPeer:
    """The peer as this store sees it; `reads` None: it is away."""
    name = link.address.name
    state = PeerState.RESTING if pool.sources.rests(name, now) else PeerState.HERE
    return PoolPeer(
        name=name,
        address=str(link.address),
        state=state if link.present else PeerState.AWAY,
        blocks=pool.index.blocks_in_memory(name),
        read_blocks_total=link.read.blocks,
        read_bytes_total=link.read.bytes,
        failed_reads_total=link.read.failed,
        bytes_per_s=pool.sources.bytes_per_s(name),
        problem=told_problem(link.problem),
        level="" if reads is None else reads.read_level.level,
        level_problem="" if reads is None else told_problem(reads.read_level.problem),
        paths=() if reads is None else reads.paths(),
    )
