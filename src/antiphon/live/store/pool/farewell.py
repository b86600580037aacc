"""What a store that leaves its pool in order gives to others: blocks that nobody else has.

    its own memory, less what peers have ──► PoolPlace to each block's heir ──► the heir reads it

Bounded: what was not read in time is computed again by whoever wants it, as after a crash.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from antiphon.core.store_pool import StorePool
from antiphon.types import BlockKey, PlacedBlock, Seconds, StoreName

from .pool_link import PoolLink

_LOOK_S: Seconds = 0.05
"""How often it is looked what the heirs have."""
_STALLED_LOOKS = 20
"""So often in a row no heir has taken any: they have no room, or are busy with better things."""
_TOLD_AT_ONCE = 128

_log = logging.getLogger(__name__)


async def hand_over(
    pool: StorePool,
    link_of: Callable[[StoreName], PoolLink | None],
    placed: Callable[[Sequence[BlockKey]], list[PlacedBlock]],
    *,
    within_s: Seconds,
) -> None:
    """Tell heirs of this store's sole copies, until they have them, take none any more, or time is
    over. The store must still be read from. Of each block it is told once; one that can't be told
    is not waited for."""
    looked_at, told = set[BlockKey](), set[BlockKey]()
    left, looks = 0, 0
    try:
        async with asyncio.timeout(within_s):
            while (sole := pool.sole_copies(but=looked_at)) or any(map(pool.is_sole, told)):
                now_left = sum(map(pool.is_sole, told))
                looks = 0 if sole or now_left != left else looks + 1
                left = now_left
                if looks == _STALLED_LOOKS:
                    raise TimeoutError
                for heir, keys in sole.items():
                    new = keys[:_TOLD_AT_ONCE]
                    looked_at.update(new)
                    link = link_of(heir)
                    if link is not None and (blocks := placed(new)):
                        told.update(block.key for block in blocks)
                        await link.place(blocks)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        _log.info("some blocks that only this store had were not taken (at most %s s)", within_s)
