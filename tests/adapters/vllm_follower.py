"""Who follows our blocks: it decodes what vLLM's format description says, and knows no more."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import zmq

from antiphon.adapters.vllm_kv_events import END, TOPIC, VllmKvEvents, block_hash
from antiphon.types import BlockKey, BlockRemoved, BlockStored, KvEvent

WAIT_MS = 10_000
Hash = int | bytes


class Stored(msgspec.Struct, tag="BlockStored", array_like=True):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    lora_name: str | None = None


class Removed(msgspec.Struct, tag="BlockRemoved", array_like=True):
    block_hashes: list[Hash]
    medium: str | None = None


class Cleared(msgspec.Struct, tag="AllBlocksCleared", array_like=True):
    pass


class StoredMap(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None = None


class RemovedMap(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[Hash]
    medium: str | None


class ClearedMap(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Stored | Removed | Cleared]
    data_parallel_rank: int | None = None


class MapBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[StoredMap | RemovedMap | ClearedMap]
    data_parallel_rank: int | None = None


def key(number: int) -> BlockKey:
    return number.to_bytes(32, "big")


def stored(number: int, parent: int | None = None, tokens: int = 64) -> BlockStored:
    return BlockStored(
        key(number),
        None if parent is None else key(parent),
        pages=(number,),
        tokens=tuple(range(number, number + tokens)),
    )


def removed(number: int) -> BlockRemoved:
    return BlockRemoved(key(number))


class Follower:
    """A SUB socket, and a DEALER for what it missed, as the format's users write them."""

    def __init__(self, context: zmq.Context[Any], events: VllmKvEvents, *, hwm: int = 1000) -> None:
        self._sub = context.socket(zmq.SUB)
        self._sub.setsockopt(zmq.RCVHWM, hwm)
        self._sub.connect(events.endpoint)
        self._sub.setsockopt(zmq.SUBSCRIBE, TOPIC)
        self._dealer = context.socket(zmq.DEALER)
        if events.replay_endpoint:
            self._dealer.connect(events.replay_endpoint)
        self.blocks: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        self.last = -1
        self.missed: list[int] = []

    def next(self) -> tuple[int, Batch] | None:
        """The next batch that comes; None: nothing for a while."""
        if not self._sub.poll(WAIT_MS):
            return None
        topic, number, payload = self._sub.recv_multipart()
        assert topic == TOPIC
        return int.from_bytes(number, "big"), msgspec.msgpack.decode(payload, type=Batch)

    def replayed(self, first: int) -> list[tuple[int, Batch]]:
        self._dealer.send_multipart([b"", first.to_bytes(8, "big")])
        found = []
        while self._dealer.poll(WAIT_MS):
            empty, number, payload = self._dealer.recv_multipart()
            assert empty == b""
            if number == END:
                return found
            number = int.from_bytes(number, "big")
            found.append((number, msgspec.msgpack.decode(payload, type=Batch)))
        raise AssertionError("the replay has no end")

    def send_raw(self, *frames: bytes) -> None:
        self._dealer.send_multipart(frames)

    def follow_until(self, good: Callable[[], bool]) -> None:
        """Take what comes, ask for what is missing, until `good`."""
        while not good():
            came = self.next()
            assert came is not None, f"nothing comes any more after {self.last}"
            number, batch = came
            if number > self.last + 1:
                self.missed.append(number)
                for old, again in self.replayed(self.last + 1):
                    self.take(old, again)
            self.take(number, batch)

    def take(self, number: int, batch: Batch) -> None:
        if number <= self.last:
            return
        self.last = number
        for event in batch.events:
            match event:
                case Stored(hashes, parent, tokens, size):
                    assert size == len(tokens)
                    (one,) = hashes
                    self.blocks[one] = (parent, tuple(tokens))
                case Removed(hashes):
                    for one in hashes:
                        self.blocks.pop(one, None)
                case Cleared():
                    self.blocks.clear()


def truth(events: Sequence[KvEvent]) -> dict[int, tuple[int | None, tuple[int, ...]]]:
    blocks: dict[int, tuple[int | None, tuple[int, ...]]] = {}
    for event in events:
        if isinstance(event, BlockStored):
            parent = None if event.parent is None else block_hash(event.parent)
            blocks[block_hash(event.key)] = (parent, event.tokens)
        else:
            blocks.pop(block_hash(event.key), None)
    return blocks


def followed(context: zmq.Context[Any], events: VllmKvEvents, **how: Any) -> Follower:
    """One that has certainly joined: whoever subscribes late asks for what came before."""
    follower = Follower(context, events, **how)
    number = 10**9
    while not follower._sub.poll(20):
        number += 1
        events.heard(stored(number, tokens=1))
        events.heard(removed(number))
    return follower
