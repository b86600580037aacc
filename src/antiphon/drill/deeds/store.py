"""Faults of what the store has on disk: a damaged block, a full disk."""

import asyncio
import time
from itertools import count

from antiphon.core.draws import Draws
from antiphon.core.faults import FillDisk
from antiphon.drill.process_fault import file_limit, limit_files
from antiphon.drill.stored_blocks import ChangedByte, change_byte
from antiphon.errors import PeerError
from antiphon.types import Seconds
from antiphon.workload import AskMix, ask

from .scene import BACK_S, POLL_S, Hit, Scene, Seen

_DROPPED = "antiphon_store_dropped_blocks_total"
_NEW = AskMix(prompt_words=(200, 200), max_tokens=(1, 1), pair_share=0.0)
_BETWEEN_S: Seconds = 0.2
_NO_ROOM = ("put_full", "put_paused")


async def do_corrupt(scene: Scene, hit: Hit, seed: int) -> Seen | None:
    """Flip a bit of a block on disk; while there is none, wait until the load is over."""
    changed: ChangedByte | None = None
    draws = Draws(seed)
    while (changed := change_byte(hit.process, draws, hit.fault.number)) is None:
        if scene.over.is_set():
            return None
        await scene.pause(POLL_S)
    if not changed.is_there:
        raise hit.no_effect(f"{changed.file} is as it was")
    return Seen(
        evidence=f"byte {changed.at} of {changed.file.name} was {changed.was:#04x}, "
        f"is {changed.now:#04x}",
        back_at=time.monotonic(),
    )


async def do_fill_disk(scene: Scene, hit: Hit, action: FillDisk) -> Seen | None:
    """The store can write no more to any file; its counters must show that it wanted to, for which
    chats of our own give it something to write."""
    before = await _refused(scene)
    former = limit_files(hit.process, 0)
    if former is None:
        return None
    try:
        if file_limit(hit.process) != 0:
            raise hit.no_effect("its files have no limit")
        writing = asyncio.create_task(_write_something(scene, hit))
        try:
            await scene.pause(hit.at + action.for_s - time.monotonic())
            refused = await _refused_since(scene, hit, before)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    finally:
        limit_files(hit.process, former)
    back = await scene.until(hit.victim.name, lambda life: life.there, BACK_S)
    return Seen(evidence=f"{refused:.0f} blocks could not be written", back_at=back)


async def _write_something(scene: Scene, hit: Hit) -> None:
    """Chats that nobody has asked before: their blocks are new to the store. Until cancelled."""
    for number in count():
        await scene.send(ask(_NEW, hit.process.started + number, number))
        await scene.pause(_BETWEEN_S)


async def _refused_since(scene: Scene, hit: Hit, before: float) -> float:
    """How many more were refused; the store tells it a moment later."""
    ends_at = time.monotonic() + scene.effect_s
    while (now := await _refused(scene)) <= before:
        if time.monotonic() > ends_at:
            raise hit.no_effect("the store wrote all it had, or had nothing to write")
        await scene.pause(POLL_S)
    return now - before


async def _refused(scene: Scene) -> float:
    """Blocks that the disk tier had no room for, so far."""
    try:
        samples = await scene.target.samples()
    except PeerError:
        return 0.0  # a gateway that is away knows nothing, and asks the store anew
    return sum(
        count
        for series, count in samples.items()
        if series.startswith(_DROPPED)
        and 'tier="disk"' in series
        and any(f'reason="{reason}"' in series for reason in _NO_ROOM)
    )
