"""Mooncake's store, in its virtualenv.

    mooncake_peer.py keep MASTER_PORT BYTES              lends the store its memory, until the end
    mooncake_peer.py use MASTER_PORT VALUES VALUE_BYTES  commands as in store_commands.py

The user lends nothing, so that values lie in another process, as they do with the others. It puts
from registered memory and gets into it (`put_from`, `get_into`): nothing is copied twice.
"""

import ctypes
import mmap
import sys

from mooncake.store import MooncakeDistributedStore
from store_commands import serve

_BUFFER_BYTES = 64 * 2**20


def joined(port: int, lent_bytes: int):
    store = MooncakeDistributedStore()
    code = store.setup(
        "127.0.0.1",
        "P2PHANDSHAKE",
        lent_bytes,
        _BUFFER_BYTES,
        "tcp",
        "",
        f"127.0.0.1:{port}",
    )
    if code:
        raise SystemExit(f"Mooncake's store can't be joined: {code}")
    return store


class MooncakeStore:
    def __init__(self, port: int, memory: mmap.mmap) -> None:
        self._store = joined(port, 0)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._view = memoryview(memory)
        if code := self._store.register_buffer(self._start, len(memory)):
            raise SystemExit(f"memory can't be registered: {code}")

    def put(self, keys: list[str], slots: list[memoryview]) -> None:
        places, sizes = self._places(slots)
        if len(keys) == 1:
            codes = [self._store.put_from(keys[0], places[0], sizes[0])]
        else:
            codes = self._store.batch_put_from(keys, places, sizes)
        if any(codes):
            raise RuntimeError(f"puts ended with {codes}")

    def get(self, keys: list[str], slots: list[memoryview]) -> None:
        places, sizes = self._places(slots)
        if len(keys) == 1:
            got = [self._store.get_into(keys[0], places[0], sizes[0])]
        else:
            got = self._store.batch_get_into(keys, places, sizes)
        if list(got) != sizes:
            raise RuntimeError(f"gets ended with {got}")

    def exists(self, keys: list[str]) -> int:
        return sum(found == 1 for found in self._store.batch_is_exist(keys))

    def delete(self, keys: list[str]) -> None:
        if any(self._store.batch_remove(keys, True)):
            raise RuntimeError("old values can't be removed")

    def _places(self, slots: list[memoryview]) -> tuple[list[int], list[int]]:
        places = [ctypes.addressof(ctypes.c_char.from_buffer(slot)) for slot in slots]
        return places, [len(slot) for slot in slots]


if __name__ == "__main__":
    role, port, *rest = sys.argv[1:]
    if role == "keep":
        store = joined(int(port), int(rest[0]))
        print("ready", flush=True)
        sys.stdin.read()
    else:
        values, size = map(int, rest)
        memory = mmap.mmap(-1, 2 * values * size)
        serve(lambda: MooncakeStore(int(port), memory), memory, size)
