"""What operators may ask of a store, and how it is done."""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from antiphon.core.kv.block_keys import KEY_BYTES
from antiphon.types import (
    BlockKey,
    StoreAnswer,
    StoreAsk,
    StoreConfig,
    StoreOp,
    Tier,
    TierStats,
)

from .disk_blocks import DiskBlocks
from .remote_blocks import RemoteBlocks
from .tiered_blocks import TieredBlocks

MOST_KEYS = 2**16
_BLOCKS_AT_ONCE = 64
_REMOTE_BLOCKS_AT_ONCE = 8
"""Somebody's fetch from there waits for so many at most."""
MOST_VERIFIED_REMOTE = 1024
_HOLDER = "operator"
_REMOTE_SILENT = (
    "memory and disk are cleared, but the remote tier could not be asked about all that it has: "
    "what is there can be found again; clear once more when it answers"
)
_PEERS_SILENT = (
    "these stores of the pool could not be asked, and have what they had: {}; clear once more when "
    "they answer"
)
_REMOTE_NOT_VERIFIED = (
    "the remote tier could not be asked, so its blocks are not verified: try again when it answers"
)
_NO_ROOM_FOR_PINS = (
    "at most half of the store's memory can be pinned, and that is: unpin another prompt, or raise "
    "store.memory_bytes (--store-memory)"
)
_NOT_ALL_THERE = "the store has no more of the prompt: send it once, then pin it again"
_PINNED = "{} are pinned and stay in memory: unpin them first"
_LOOKING = (StoreOp.STATS, StoreOp.LOOKUP)
_LATE = "it was not done in time: what is done stays done"
_OVER = "meanwhile the store stopped, or began anew for workers of another model or layout"


class StoreOperator:
    """Implements `watcher.Operator`. `blocks` are those that the store has now, if any."""

    def __init__(self, blocks: Callable[[], TieredBlocks | None], config: StoreConfig) -> None:
        self._blocks = blocks
        self._config = config

    async def answer(self, ask: StoreAsk) -> StoreAnswer:
        """See `watcher.Operator`."""
        if problem := _problem(ask):
            return StoreAnswer(problem=problem)
        blocks = self._blocks()
        if blocks is None:
            return self._empty(ask)
        try:
            async with asyncio.timeout(ask.wait_s):
                answer = await blocks.using(self._answer(blocks, ask))
        except TimeoutError:
            return StoreAnswer(problem=_LATE)
        return answer if answer is not None else StoreAnswer(problem=_OVER)

    async def _answer(self, blocks: TieredBlocks, ask: StoreAsk) -> StoreAnswer:
        if blocks.disk is not None and ask.op in _LOOKING:
            await blocks.disk.lose_deleted()
        match ask.op:
            case StoreOp.STATS:
                return StoreAnswer(stats=_stats(blocks))
            case StoreOp.LOOKUP:
                return StoreAnswer(
                    tiers=blocks.tiers_of(ask.keys),
                    blocks=blocks.host.present(ask.keys),
                )
            case StoreOp.PIN:
                await self._bring_up(blocks, ask)
                return _pin(blocks, ask.keys)
            case StoreOp.UNPIN:
                return StoreAnswer(blocks=blocks.host.unpin(ask.keys))
            case StoreOp.PREFETCH:
                return StoreAnswer(blocks=await self._bring_up(blocks, ask))
            case StoreOp.CLEAR:
                return await _clear(blocks, ask)
            case StoreOp.MOVE:
                return await self._move(blocks, ask)
            case StoreOp.VERIFY:
                return await _verify(blocks, ask.keys or None)

    def _empty(self, ask: StoreAsk) -> StoreAnswer:
        """No worker was here yet, so there are no blocks, and no size of one."""
        if ask.op is StoreOp.STATS:
            limit = self._config.memory_bytes
            return StoreAnswer(
                stats=(TierStats(tier=Tier.HOST, blocks=0, used_bytes=0, limit_bytes=limit),)
            )
        return StoreAnswer(tiers=((),) * len(ask.keys))

    async def _bring_up(self, blocks: TieredBlocks, ask: StoreAsk) -> int:
        """The longest prefix that can be had into shared memory; how many blocks it has."""
        wait_s = self._config.fetch_timeout_s
        lease, slots, _ = await blocks.locate(ask.keys, ask.tenant, wait_s, _HOLDER)
        if lease is not None:
            blocks.release(lease)
        return len(slots)

    async def _move(self, blocks: TieredBlocks, ask: StoreAsk) -> StoreAnswer:
        """They are on the other tier before they leave theirs."""
        if blocks.disk is None:
            return StoreAnswer(problem="there is no disk tier: set store.disk_bytes (--store-disk)")
        match ask.tier:
            case Tier.HOST:
                count = await self._bring_up(blocks, ask)
                await blocks.disk.clear(None, ask.keys[:count])
                return StoreAnswer(blocks=count)
            case Tier.DISK:
                count, pinned = await _to_disk(blocks, blocks.disk, ask.keys)
                return StoreAnswer(blocks=count, note=_PINNED.format(pinned) if pinned else "")
            case _:
                return StoreAnswer(problem="blocks can be moved to host or disk")


async def _to_disk(
    blocks: TieredBlocks, disk: DiskBlocks, keys: Sequence[BlockKey]
) -> tuple[int, int]:
    """How many are there now, and in memory no more; how many are pinned, and stay in memory.

    Each part is waited for by itself, others' blocks need not be written. A block leaves memory
    only once it was read from the disk.
    """
    count = pinned = 0
    for part in _parts(keys):
        await disk.lose_deleted()
        for key in part:
            disk.offer(key)
        await disk.settled(part)
        # What was lost may be written anew meanwhile: that copy has not been read.
        there = [key for key in part if key in disk]
        lost = frozenset((await disk.verify(there)).forgotten)
        kept = [key for key in part if blocks.host.is_pinned(key)]
        moved = [key for key in there if key in disk and key not in lost and key not in kept]
        for key in moved:
            blocks.host.drop(key)
        count += len(moved)
        pinned += len(kept)
    return count, pinned


def _problem(ask: StoreAsk) -> str:
    if len(ask.keys) > MOST_KEYS:
        return f"at most {MOST_KEYS} blocks can be asked about at once"
    if ask.wait_s is not None and not 0 <= ask.wait_s < math.inf:
        return f"nobody can wait for {ask.wait_s} s"
    if any(len(key) != KEY_BYTES for key in ask.keys):
        return f"a block's key has {KEY_BYTES} bytes"
    return ""


def _stats(blocks: TieredBlocks) -> tuple[TierStats, ...]:
    host = blocks.host.stats(blocks.memory.slot_bytes)
    mine = (*sorted(blocks.dropped.items()),)
    host = replace(host, dropped=(*host.dropped, *mine))
    levels = blocks.peers.levels()
    peers = () if levels is None else (levels,)
    slower = (tier.stats() for tier in (blocks.disk, blocks.remote) if tier is not None)
    return (host, *peers, *slower)


async def _clear(blocks: TieredBlocks, ask: StoreAsk) -> StoreAnswer:
    """At peers before and after: what one has read from here meanwhile goes, too."""
    keys = ask.keys or None
    there, silent = await blocks.peers.clear(ask.tenant, keys)
    count, all_asked = await blocks.clear(ask.tenant, keys)
    if blocks.peers.possible:
        again, silent = await blocks.peers.clear(ask.tenant, keys)
        there += again
    problems = [_PEERS_SILENT.format(", ".join(silent))] if silent else []
    problems += [] if all_asked else [_REMOTE_SILENT]
    return StoreAnswer(blocks=max(count, there), problem="; ".join(problems))


def _pin(blocks: TieredBlocks, keys: Sequence[BlockKey]) -> StoreAnswer:
    pinned, there = blocks.host.pin(keys, blocks.now()), blocks.host.present(keys)
    if pinned < there:
        return StoreAnswer(blocks=pinned, note=_NO_ROOM_FOR_PINS)
    return StoreAnswer(blocks=pinned, note=_NOT_ALL_THERE if 0 < there < len(keys) else "")


async def _verify(blocks: TieredBlocks, keys: Sequence[BlockKey] | None) -> StoreAnswer:
    """How many were wrong or missing, and are forgotten."""
    wrong, notes = 0, list[str]()
    for part in _parts(keys if keys is not None else list(blocks.host.keys)):
        wrong += await _verify_in_memory(blocks, part)
    if blocks.disk is not None:
        there = list(blocks.disk.keys) if keys is None else keys
        lost = await blocks.disk.lose_deleted()
        if deleted := sum(key in lost for key in there):
            wrong += deleted
            notes.append(f"{deleted} lay in files of the disk tier that were deleted")
        for part in _parts([key for key in there if key not in lost]):
            wrong += len((await blocks.disk.verify(part)).forgotten)
    if blocks.remote is not None:
        found, said = await _verify_remote(
            blocks.remote, keys if keys is not None else list(blocks.remote.keys)
        )
        wrong += found
        notes += said
    return StoreAnswer(blocks=wrong, note="; ".join(notes))


async def _verify_remote(
    remote: RemoteBlocks, keys: Sequence[BlockKey]
) -> tuple[int, Sequence[str]]:
    """How many were wrong or missing, and what is to be said of it. All are looked for, and not too
    many read: that crosses the network."""
    said = await remote.forget_absent(keys)
    if said is None:
        return 0, [_REMOTE_NOT_VERIFIED]
    absent, missing = said
    wrong, note = await _read_from_remote(remote, [key for key in keys if key not in absent])
    gone = f"{missing} were missing on the remote tier (store.remote), and are forgotten"
    return missing + wrong, [*([gone] if missing else []), *([note] if note else [])]


async def _read_from_remote(remote: RemoteBlocks, keys: Sequence[BlockKey]) -> tuple[int, str]:
    """How many were wrong, and what was left out."""
    some = keys
    if len(keys) > MOST_VERIFIED_REMOTE:
        some = random.sample(keys, MOST_VERIFIED_REMOTE)
    wrong = 0
    for part in _parts(some, _REMOTE_BLOCKS_AT_ONCE):
        verified = await remote.verify(part)
        wrong += len(verified.wrong)
        if not verified.all_asked:
            return wrong, _REMOTE_NOT_VERIFIED
    if some is keys:
        return wrong, ""
    return wrong, (
        f"of {len(keys)} blocks that the remote tier is known to have {len(some)} were read, "
        f"chosen at random"
    )


async def _verify_in_memory(blocks: TieredBlocks, keys: Sequence[BlockKey]) -> int:
    """Each under a hold of its own, since they need not be a chain."""
    held = [one for key in keys if (one := blocks.own_work.hold(key, _HOLDER))]
    slots = [one.slot for one in held]
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(blocks.copying, blocks.memory.intact, slots)
    try:
        intact = await asyncio.shield(work)
    finally:
        for one in held:
            blocks.own_work.release(one)
    wrong = [one.sealed.record.key for one, good in zip(held, intact, strict=True) if not good]
    for key in wrong:
        blocks.host.drop(key)
    return len(wrong)


def _parts(keys: Sequence[BlockKey], size: int = _BLOCKS_AT_ONCE) -> list[Sequence[BlockKey]]:
    return [keys[at : at + size] for at in range(0, len(keys), size)]
