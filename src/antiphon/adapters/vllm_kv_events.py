"""A worker's blocks in vLLM's KV event format, so that other routers can follow it.

    listener ──► queue ──► thread ──PUB──► followers     [topic, number, batch]
                             ▲ └──ROUTER─► a follower that missed some asks from a number on

A message has three frames: topic, number of the batch (8 bytes, big endian, from 0), and msgpack of
`[time, [event, …], rank]`. An event is an array that begins with its name, as vLLM sent them up to
0.23, or a map with its name under "type", as since 0.24; followers of today read both:

    BlockStored       block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium
    BlockRemoved      block_hashes, medium
    AllBlocksCleared

Whoever missed batches sends `["", number]` to the replay socket and gets `[number, batch]` for each
from there on, then the number -1. If that is longer ago than is kept, the one batch that comes
clears all and stores what there is now.

A block's hash is the last 64 bits of its key. A worker's own KV memory is "GPU" in this format,
whatever it lies in. ZeroMQ keeps a bounded number of batches for each follower and drops what is
beyond: nobody who reads slowly holds the worker up, and the numbers show a follower what it missed.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import UsageError
from antiphon.types import BlockKey, BlockRemoved, BlockStored, KvEvent, Seconds

TOPIC = b"kv-events"
MEDIUM = "GPU"
END = (-1).to_bytes(8, "big", signed=True)
BATCH_EVENTS = 128
"""Most events of a batch: some 30 kB."""
_LINGER_MS = 200
_DESCRIPTORS = 16
"""Two sockets take about ten."""

Wire: TypeAlias = list[Any] | dict[str, Any]
Shape: TypeAlias = Callable[[str, dict[str, Any]], Wire]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is kept at most. `queued`: events that wait for the thread; `kept_bytes`: of batches
    that a follower may ask for again; `follower_batches` (from 2 on): what waits for one that reads
    slowly, and what can be asked for again with the end mark."""

    queued: int = 65_536
    kept_bytes: int = 32 * 2**20
    follower_batches: int = 1024


def as_array(name: str, fields: dict[str, Any]) -> Wire:
    """An event as vLLM up to 0.23 sends it."""
    return [name, *fields.values()]


def as_map(name: str, fields: dict[str, Any]) -> Wire:
    """An event as vLLM from 0.24 on sends it."""
    return {"type": name, **fields}


SHAPES: dict[str, Shape] = {"array": as_array, "map": as_map}


def block_hash(key: BlockKey) -> int:
    """The 64 bits by which followers know a block."""
    return int.from_bytes(key[-8:], "big")


class VllmKvEvents:
    """Publishes one worker's events. Call `heard` from one thread; it never waits.

    `clock` is wall time, as followers compare it. `dropped` counts events that found the queue
    full: followers are told of everything anew then. Raises `UsageError` if pyzmq is absent, an
    endpoint can't be bound, or no thread or descriptor is left.
    """

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str | None = None,
        *,
        rank: int = 0,
        shape: str = "array",
        clock: Callable[[], Seconds] = time.time,
        limits: Limits = Limits(),
    ) -> None:
        self.dropped = 0
        self.batches = 0
        self._rank, self._shape, self._clock = rank, SHAPES[shape], clock
        self._limits = limits
        self._lock = threading.Lock()
        self._queue: deque[KvEvent] = deque()
        self._blocks: dict[BlockKey, BlockStored] = {}
        """All that is stored, as `heard` knows it; guarded like the queue by the lock."""
        self._anew = True
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._closing = False
        self._zmq = _library()
        self._sockets: list[Any] = []
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)
        with ExitStack() as unless_made:
            try:
                _see_room()
                self._context = self._zmq.Context()
                unless_made.callback(self._context.destroy, 0)
                self._wake = os.eventfd(1, os.EFD_NONBLOCK)
                unless_made.callback(os.close, self._wake)
                self._open(endpoint, replay_endpoint)
                self._thread.start()
            except (OSError, self._zmq.ZMQError) as error:
                raise UsageError(
                    f"kv.events: {error.strerror}: raise the limit of open files (ulimit -n)"
                ) from None
            except RuntimeError as error:
                raise UsageError(
                    f"kv.events: {error}: raise the limit of threads (ulimit -u, pids.max)"
                ) from None
            unless_made.pop_all()

    @property
    def endpoint(self) -> str:
        """Where followers connect: with the real port if any free one was asked for."""
        return self._bound

    @property
    def replay_endpoint(self) -> str:
        """Where who missed something connects; empty: nowhere."""
        return self._replay_bound

    def heard(self, event: KvEvent) -> None:
        """Take one event of the worker's page pool; it is published soon. A `KvListener`."""
        with self._lock:
            if isinstance(event, BlockStored):
                self._blocks[event.key] = event
            else:
                self._blocks.pop(event.key, None)
            if len(self._queue) < self._limits.queued:
                self._queue.append(event)
            else:
                self.dropped += 1
                self._anew = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Publish what is queued, and end. Returns when the sockets are closed."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    # ── the thread ───────────────────────────────────────────────────────────────────────────

    def _open(self, endpoint: str, replay_endpoint: str | None) -> None:
        zmq = self._zmq

        def bound(kind: int, place: str, key: str) -> str:
            try:
                socket = self._context.socket(kind)
                self._sockets.append(socket)
                socket.setsockopt(zmq.SNDHWM, self._limits.follower_batches)
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.IPV6, int("[" in place))
                socket.bind(place)
            except zmq.ZMQError as error:
                raise UsageError(f'{key} = "{place}": can\'t listen there: {error}') from None
            return socket.getsockopt_string(zmq.LAST_ENDPOINT)

        self._bound = bound(zmq.PUB, endpoint, "kv.events")
        self._replay_bound = ""
        if replay_endpoint is not None:
            self._replay_bound = bound(zmq.ROUTER, replay_endpoint, "kv.events_replay")

    def _run(self) -> None:
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for replay in self._sockets[1:]:
            poller.register(replay, zmq.POLLIN)
        try:
            while not self._closing:
                poller.poll()
                self._publish_queued()
                for replay in self._sockets[1:]:
                    while replay.poll(0):
                        self._answer(replay)
            self._publish_queued()
        finally:
            self._context.destroy(_LINGER_MS)

    def _publish_queued(self) -> None:
        """All that is queued, or, if something was lost, all that there is."""
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return
        while batches := self._take():
            for events in batches:
                self._publish(events)

    def _take(self) -> list[list[Wire]]:
        """What the next batches say; none: nothing waits."""
        with self._lock:
            anew, self._anew = self._anew, False
            stored, queued = list(self._blocks.values()) if anew else [], list(self._queue)
            self._queue.clear()
        said = self._everything(stored) if anew else list(map(self._said, queued))
        return [said[at : at + BATCH_EVENTS] for at in range(0, len(said), BATCH_EVENTS)]

    def _publish(self, events: Sequence[Wire]) -> None:
        number, payload = self.batches, self._packed(events)
        self._kept.append((number, payload))
        self._kept_bytes += len(payload)
        limits = self._limits
        while self._kept_bytes > limits.kept_bytes or len(self._kept) >= limits.follower_batches:
            self._kept_bytes -= len(self._kept.popleft()[1])
        self.batches += 1
        self._sockets[0].send_multipart((TOPIC, number.to_bytes(8, "big"), payload))

    def _answer(self, replay: Any) -> None:
        """Serve one follower that missed something. What is no such question is not answered."""
        frames = replay.recv_multipart()
        if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
            return
        follower, first = frames[0], int.from_bytes(frames[2], "big")
        if self._kept and first >= self._kept[0][0]:
            said = [(number, batch) for number, batch in self._kept if number >= first]
        elif first < self.batches:
            with self._lock:
                stored = list(self._blocks.values())
            said = [(self.batches - 1, self._packed(self._everything(stored)))]
        else:
            said = []
        for number, batch in said:
            replay.send_multipart((follower, b"", number.to_bytes(8, "big"), batch))
        replay.send_multipart((follower, b"", END, b""))

    def _packed(self, events: Sequence[Wire]) -> bytes:
        return msgspec.msgpack.encode([self._clock(), events, self._rank])

    def _everything(self, stored: Sequence[BlockStored]) -> list[Wire]:
        return [self._shape("AllBlocksCleared", {}), *map(self._said, stored)]

    def _said(self, event: KvEvent) -> Wire:
        match event:
            case BlockStored():
                return self._shape(
                    "BlockStored",
                    {
                        "block_hashes": [block_hash(event.key)],
                        "parent_block_hash": event.parent and block_hash(event.parent),
                        "token_ids": event.tokens,
                        "block_size": len(event.tokens),
                        "lora_id": None,
                        "medium": MEDIUM,
                    },
                )
            case BlockRemoved():
                return self._shape(
                    "BlockRemoved", {"block_hashes": [block_hash(event.key)], "medium": MEDIUM}
                )


def _see_room() -> None:
    """Raises `OSError` where ZeroMQ would not have its descriptors: it ends the process then."""
    with ExitStack() as held:
        for _ in range(_DESCRIPTORS):
            held.callback(os.close, os.eventfd(0))


def _library() -> Any:
    try:
        import zmq
    except ImportError:
        raise UsageError(
            "kv.events needs pyzmq, which is not installed: pip install antiphon[events]"
        ) from None
    return zmq
