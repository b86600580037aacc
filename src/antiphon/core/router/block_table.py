"""Which blocks lie in which slots, one bit a slot: a prompt's prefix is matched on all at once.

A slot is whatever blocks come to and leave together: a worker's memory, a tier of the store. The
table maps a block's key to the bits of the slots that have it, so that following a prompt costs one
look-up and one AND a block, however many workers there are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import repeat
from typing import NamedTuple

from antiphon.types import BlockKey

_MOST_EQUAL = 2**16


@dataclass(slots=True, eq=False)
class Slot:
    """One bit of the table, and the keys of the blocks that have it."""

    bit: int
    keys: set[BlockKey] = field(default_factory=set)


class Walk(NamedTuple):
    """How far a prompt's blocks reach.

    `ends`: (blocks, bits): these slots have exactly so many of the first blocks; those that lack
    the first are not listed. `runs`: (bits, blocks): the first blocks that any of the other slots
    has, in order, and which ones.
    """

    ends: list[tuple[int, int]]
    runs: list[tuple[int, int]]


class _Steps:
    """What is noted when a block lies elsewhere than the one before it."""

    def __init__(self, each: int, together: int) -> None:
        self.ends: list[tuple[int, int]] = []
        self.runs: list[tuple[int, int]] = []
        self._each, self._together = each, together
        self._run = self._began = 0

    def step(self, blocks: int, bits: int) -> int:
        """After so many blocks comes one that these slots have. Returns who is followed on it.

        The bits of the store may change from block to block; a worker's are cleared for good.
        """
        if fallen := self._each & ~bits:
            self._each ^= fallen
            if blocks:
                self.ends.append((blocks, fallen))
        shared = bits & self._together
        if shared != self._run or not shared:
            if self._run:
                self.runs.append((self._run, blocks - self._began))
            self._run, self._began = shared, blocks
            if not shared:
                self._together = 0
        return self._each | self._together


class BlockTable:
    """Mutable. A slot that is closed may be dropped bit by bit: who matches leaves it out."""

    def __init__(self) -> None:
        self._bits: dict[BlockKey, int] = {}
        self._equal: dict[int, int] = {}
        self._free: list[int] = []
        self._opened = 0
        self._closed: list[Slot] = []

    def __len__(self) -> int:
        """Blocks that some slot has, closed ones among them."""
        return len(self._bits)

    def open(self) -> Slot:
        """A new slot without blocks. Mutates. Low bits are used again first: masks stay short."""
        if self._free:
            return Slot(heappop(self._free))
        self._opened += 1
        return Slot(1 << (self._opened - 1))

    def add(self, slot: Slot, key: BlockKey) -> None:
        """The slot has this block. Mutates."""
        slot.keys.add(key)
        bits = self._bits.get(key)
        self._bits[key] = slot.bit if bits is None else self._one(bits | slot.bit)

    def remove(self, slot: Slot, key: BlockKey) -> None:
        """The slot lacks this block. Mutates."""
        if key in slot.keys:
            slot.keys.remove(key)
            self._clear(slot, key)

    def close(self, slot: Slot) -> None:
        """The slot is over. Mutates; its bit is not used again before `sweep` is done with it."""
        self._closed.append(slot)

    def sweep(self, blocks: int) -> None:
        """Clear at most so many blocks of closed slots. Mutates."""
        while self._closed and blocks > 0:
            slot = self._closed[-1]
            while slot.keys and blocks > 0:
                self._clear(slot, slot.keys.pop())
                blocks -= 1
            if not slot.keys:
                self._closed.pop()
                heappush(self._free, slot.bit)

    def has(self, key: BlockKey, bits: int) -> bool:
        """Whether any of these slots has the block."""
        return bool(self._bits.get(key, 0) & bits)

    def walk(self, keys: Iterable[BlockKey], each: int, together: int = 0) -> Walk:
        """Follow a prompt's blocks on the slots `each`, and on those of `together` as if one.

        Takes no more keys than somebody has, and one. Does not mutate.
        """
        walk, either = _Steps(each, together), each | together
        last, blocks = -1, 0
        for held in map(self._bits.get, keys, repeat(0)):
            bits = held & either
            if bits != last:  # rare: most of a prompt's blocks lie where the one before does
                either = walk.step(blocks, bits)
                if not either:
                    break
                last = bits & either
            blocks += 1
        walk.step(blocks, 0)
        return Walk(walk.ends, walk.runs)

    def _one(self, bits: int) -> int:
        """Equal sets of slots are one object: those that a walk meets again are in the cache."""
        if len(self._equal) >= _MOST_EQUAL:
            self._equal.clear()
        return self._equal.setdefault(bits, bits)

    def _clear(self, slot: Slot, key: BlockKey) -> None:
        left = self._bits[key] & ~slot.bit
        if left:
            self._bits[key] = self._one(left)
        else:
            del self._bits[key]
