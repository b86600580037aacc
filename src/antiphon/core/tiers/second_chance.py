"""Which blocks of the oldest segment are worth being written again before it goes.

A log that is overwritten from its oldest end is a FIFO, the worst of the usual rules. With one bit
of use a block it becomes CLOCK (Corbató 1968), near to LRU, without a write at each read.
"""

from collections.abc import Sequence
from typing import NamedTuple

from antiphon.types import BlockKey


class Candidate(NamedTuple):
    """A block that is about to go. `uses`: reads since it was written."""

    key: BlockKey
    size_bytes: int
    uses: int


def worth_rewriting(oldest: Sequence[Candidate], budget_bytes: int) -> Sequence[BlockKey]:
    """Those that were used, most used first, as far as `budget_bytes` go; in the given order.

    Equal uses: earlier ones first, which are the parents. The budget bounds the work, and below
    the segment's size it makes sure that the log becomes shorter.
    """
    used = [number for number, candidate in enumerate(oldest) if candidate.uses > 0]
    chosen: list[int] = []
    for number in sorted(used, key=lambda number: (-oldest[number].uses, number)):
        if oldest[number].size_bytes <= budget_bytes:
            budget_bytes -= oldest[number].size_bytes
            chosen.append(number)
    return [oldest[number].key for number in sorted(chosen)]
