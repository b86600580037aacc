"""What the process of a store peer does: it puts, gets and looks up values as it is told.

Runs in the peer's virtualenv. A command is a line of JSON, `["put", [[n, …], …]]` (or get, exists):
one call for each list of value numbers. The answer is a list with the seconds of each call, a copy
into or out of the memory that a worker would use included. Values are in memory that is faulted
in; each has its number at both ends, which is checked after a get. A put gives the value a new key,
as stores do nothing for one that they have; the old one is deleted afterwards.
"""

import json
import mmap
import os
import struct
import sys
import time
from typing import Protocol

_NUMBER = struct.Struct("<Q")


class Store(Protocol):
    """A peer's client. Slots are writable views of this process's memory."""

    def put(self, keys: list[str], slots: list[memoryview]) -> None:
        """Keep each value under its key."""

    def get(self, keys: list[str], slots: list[memoryview]) -> None:
        """Fill each slot with the value of its key."""

    def exists(self, keys: list[str]) -> int:
        """How many of the keys there are."""

    def delete(self, keys: list[str]) -> None:
        """Forget them."""


class Values:
    """The values of one run: where each lies, and the key that it was put under last."""

    def __init__(self, store: Store, source: memoryview, target: memoryview, size: int) -> None:
        self._store, self._size = store, size
        self._source, self._target = source, target
        self._version = [0] * (len(source) // size)
        for number in range(len(self._version)):
            slot = self._slot(source, number)
            for at in range(0, size, mmap.PAGESIZE):
                _NUMBER.pack_into(slot, at, number)
            _NUMBER.pack_into(slot, size - _NUMBER.size, number)
        for at in range(0, len(target), mmap.PAGESIZE):
            target[at] = 1

    def put(self, numbers: list[int]) -> float:
        old = [self._key(n) for n in numbers if self._version[n]]
        for number in numbers:
            self._version[number] += 1
        keys = [self._key(n) for n in numbers]
        slots = [self._slot(self._source, n) for n in numbers]
        started = time.perf_counter()
        self._store.put(keys, slots)
        took = time.perf_counter() - started
        if old:
            self._store.delete(old)
        return took

    def get(self, numbers: list[int]) -> float:
        keys = [self._key(n) for n in numbers]
        slots = [self._slot(self._target, n) for n in numbers]
        started = time.perf_counter()
        self._store.get(keys, slots)
        took = time.perf_counter() - started
        for number, slot in zip(numbers, slots, strict=True):
            for at in (0, self._size - _NUMBER.size):
                if _NUMBER.unpack_from(slot, at)[0] != number:
                    raise RuntimeError(f"value {number} came back as something else")
                _NUMBER.pack_into(slot, at, 2**40)
        return took

    def exists(self, numbers: list[int]) -> float:
        keys = [self._key(n) for n in numbers]
        started = time.perf_counter()
        found = self._store.exists(keys)
        took = time.perf_counter() - started
        if found != len(keys):
            raise RuntimeError(f"{found} of {len(keys)} keys were found")
        return took

    def _key(self, number: int) -> str:
        return f"{self._size}-{number}-{self._version[number]}"

    def _slot(self, memory: memoryview, number: int) -> memoryview:
        return memory[number * self._size : (number + 1) * self._size]


def serve(connect, memory: mmap.mmap, size: int) -> None:
    """Answer commands until standard input ends. `connect` makes the peer's client.

    The first half of `memory` is put from, the second half got into.
    """
    # Libraries print what they like: the answers get a pipe of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    whole = memoryview(memory)
    half = len(whole) // 2
    values = Values(connect(), whole[:half], whole[half:], size)
    calls = {"put": values.put, "get": values.get, "exists": values.exists}
    print("[]", file=answers)
    for line in sys.stdin:
        what, groups = json.loads(line)
        print(json.dumps([calls[what](group) for group in groups]), file=answers)
