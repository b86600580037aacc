"""Prefixes that workers compute now, and so will have soon: who comes next may follow them.

Requests that come together with the same beginning should not all compute it. What is in a worker's
queue is part of its predicted time, and so is waiting for whoever computes the prefix.
"""

from collections.abc import Iterable, Sequence

from antiphon.types import BlockKey, RequestId, WorkerId

from .block_table import BlockTable, Slot
from .held_blocks import HeldBlocks


class ExpectedPrefixes:
    """Mutable. One entry a request: at most as many as are open."""

    def __init__(self) -> None:
        self._table = BlockTable()
        self._slots: dict[WorkerId, Slot] = {}
        self._bit_of: dict[WorkerId, int] = {}
        self._worker_of: dict[int, WorkerId] = {}
        self._each = 0
        """The bits of all of them."""
        self._wanted: dict[WorkerId, dict[BlockKey, int]] = {}
        """How many requests bring each block there."""
        self._sharing: dict[BlockKey, int] = {}
        """The same, over all workers."""
        self._requests: dict[RequestId, tuple[WorkerId, Sequence[BlockKey]]] = {}

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, request: RequestId, worker: WorkerId, keys: Sequence[BlockKey]) -> None:
        """The worker was given this request, whose blocks these are. Mutates."""
        self.drop(request)
        if not keys:
            return
        self._requests[request] = (worker, keys)
        slot = self._slots.get(worker)
        if slot is None:
            slot = self._open(worker)
        wanted, sharing = self._wanted[worker], self._sharing
        for key in keys:
            sharing[key] = sharing.get(key, 0) + 1
            if key not in wanted:
                self._table.add(slot, key)
            wanted[key] = wanted.get(key, 0) + 1

    def drop(self, request: RequestId) -> None:
        """Nothing more is expected of this request. Mutates."""
        worker, keys = self._requests.pop(request, (None, ()))
        if worker is None:
            return
        slot, wanted, sharing = self._slots[worker], self._wanted[worker], self._sharing
        for key in keys:
            _take_one(sharing, key)
            if not _take_one(wanted, key):
                self._table.remove(slot, key)
        if not wanted:
            self._close(worker)

    def left(self, worker: WorkerId) -> None:
        """The worker will bring nothing. Mutates."""
        for request in [one for one, (where, _) in self._requests.items() if where == worker]:
            self.drop(request)

    def match(self, keys: Iterable[BlockKey]) -> HeldBlocks:
        """How many of a prompt's first blocks each worker will have. Does not mutate.

        Good until the next change.
        """
        ends = self._table.walk(keys, self._each).ends
        return HeldBlocks(ends, self._bit_of, self._worker_of)

    def sharing(self, key: BlockKey) -> int:
        """How many open requests have this block in their prompts. Does not mutate."""
        return self._sharing.get(key, 0)

    def _open(self, worker: WorkerId) -> Slot:
        slot = self._slots[worker] = self._table.open()
        self._wanted[worker] = {}
        self._bit_of[worker], self._worker_of[slot.bit] = slot.bit, worker
        self._each |= slot.bit
        return slot

    def _close(self, worker: WorkerId) -> None:
        slot = self._slots.pop(worker)
        self._table.close(slot)
        self._table.sweep(1)
        self._each ^= slot.bit
        del self._wanted[worker], self._bit_of[worker], self._worker_of[slot.bit]


def _take_one(counts: dict[BlockKey, int], key: BlockKey) -> int:
    """How many are left. What comes to 0 is not kept. (`Counter` deletes several times slower.)"""
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
    return left
