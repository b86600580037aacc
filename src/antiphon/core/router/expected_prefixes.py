"""Prefixes that workers compute now, and so will have soon: who comes next may follow them.

Requests that come together with the same beginning should not all compute it. What is in a worker's
queue is part of its predicted time, and so is waiting for whoever computes the prefix.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from antiphon.types import BlockKey, RequestId, WorkerId

from .block_table import BlockTable, Slot


class ExpectedPrefixes:
    """Mutable. One entry a request: at most as many as are open."""

    def __init__(self) -> None:
        self._table = BlockTable()
        self._slots: dict[WorkerId, Slot] = {}
        self._wanted: dict[WorkerId, Counter[BlockKey]] = {}
        """How many requests bring each block there."""
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
            slot = self._slots[worker] = self._table.open()
            self._wanted[worker] = Counter()
        wanted = self._wanted[worker]
        for key in keys:
            if key not in wanted:
                self._table.add(slot, key)
            wanted[key] += 1

    def drop(self, request: RequestId) -> None:
        """Nothing more is expected of this request. Mutates."""
        worker, keys = self._requests.pop(request, (None, ()))
        if worker is None:
            return
        slot, wanted = self._slots[worker], self._wanted[worker]
        for key in keys:
            wanted[key] -= 1
            if not wanted[key]:
                del wanted[key]
                self._table.remove(slot, key)
        if not wanted:
            self._table.close(slot)
            self._table.sweep(1)
            del self._slots[worker], self._wanted[worker]

    def left(self, worker: WorkerId) -> None:
        """The worker will bring nothing. Mutates."""
        for request in [one for one, (where, _) in self._requests.items() if where == worker]:
            self.drop(request)

    def match(self, keys: Iterable[BlockKey]) -> dict[WorkerId, int]:
        """How many of a prompt's first blocks each worker will have. Does not mutate."""
        each = sum(slot.bit for slot in self._slots.values())
        found: dict[WorkerId, int] = {}
        for blocks, bits in self._table.walk(keys, each).ends:
            found |= {worker: blocks for worker, slot in self._slots.items() if slot.bit & bits}
        return found
