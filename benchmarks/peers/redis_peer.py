"""Redis as a store of KV: `redis_peer.py SOCKET_PORT VALUES VALUE_BYTES`, commands as in
store_commands.py. The client is the `redis` library with its parser in C, over TCP on loopback."""

import mmap
import sys

import redis
from store_commands import serve


class RedisStore:
    def __init__(self, port: int) -> None:
        self._redis = redis.Redis(port=port)
        self._redis.ping()

    def put(self, keys: list[str], slots: list[memoryview]) -> None:
        if len(keys) == 1:
            self._redis.set(keys[0], slots[0])
        else:
            self._redis.mset(dict(zip(keys, slots, strict=True)))

    def get(self, keys: list[str], slots: list[memoryview]) -> None:
        found = [self._redis.get(keys[0])] if len(keys) == 1 else self._redis.mget(keys)
        for slot, value in zip(slots, found, strict=True):
            slot[:] = value

    def exists(self, keys: list[str]) -> int:
        return self._redis.exists(*keys)

    def delete(self, keys: list[str]) -> None:
        self._redis.delete(*keys)


if __name__ == "__main__":
    port, values, size = map(int, sys.argv[1:])
    serve(lambda: RedisStore(port), mmap.mmap(-1, 2 * values * size), size)
