"""Followers of our blocks: they speak ZeroMQ and decode what vLLM's format description says."""

import builtins
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.adapters.vllm_kv_events import (
    BATCH_EVENTS,
    END,
    TOPIC,
    Limits,
    VllmKvEvents,
    block_hash,
)
from antiphon.errors import UsageError
from antiphon.types import BlockKey, BlockRemoved, BlockStored, KvEvent

WAIT_MS = 10_000
ANYWHERE = "tcp://127.0.0.1:*"
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


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    with zmq.Context() as context:
        yield context
        context.destroy(0)


@pytest.fixture
def publisher() -> Iterator[Callable[..., VllmKvEvents]]:
    made: list[VllmKvEvents] = []

    def make(*, replay: str | None = ANYWHERE, **how: Any) -> VllmKvEvents:
        made.append(VllmKvEvents(ANYWHERE, replay, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def followed(context: zmq.Context[Any], events: VllmKvEvents, **how: Any) -> Follower:
    """One that has certainly joined: whoever subscribes late asks for what came before."""
    follower = Follower(context, events, **how)
    number = 10**9
    while not follower._sub.poll(20):
        number += 1
        events.heard(stored(number, tokens=1))
        events.heard(removed(number))
    return follower


def test_a_follower_decodes_what_the_format_says(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents]
) -> None:
    events = publisher(rank=3, clock=lambda: 12.5)
    follower = followed(context, events)
    events.heard(stored(1))
    events.heard(stored(2, parent=1))
    events.heard(removed(2))
    said = [event for _, batch in follower.replayed(0) for event in batch.events]
    while removed_of(said) is None:
        said = [event for _, batch in follower.replayed(0) for event in batch.events]
    assert said[0] == Cleared()
    one, two, gone = said[-3:]
    assert one == Stored([1], None, list(range(1, 65)), 64, None, "GPU")
    assert two == Stored([2], 1, list(range(2, 66)), 64, None, "GPU")
    assert gone == Removed([2], "GPU")
    batch = follower.replayed(0)[-1][1]
    assert (batch.ts, batch.data_parallel_rank) == (12.5, 3)


def removed_of(said: Sequence[object]) -> object:
    return next((event for event in said if event == Removed([2], "GPU")), None)


def test_events_as_maps_are_what_vllm_sends_today(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents]
) -> None:
    events = publisher(shape="map")
    while not events.batches:
        time.sleep(0.001)  # it begins with all that there is, which is nothing yet
    events.heard(stored(7, parent=6))
    events.heard(removed(7))
    dealer = context.socket(zmq.DEALER)
    dealer.connect(events.replay_endpoint)
    said: list[object] = []
    while len(said) < 3:
        dealer.send_multipart([b"", (0).to_bytes(8, "big")])
        said = []
        while (frames := dealer.recv_multipart())[1] != END:
            said += msgspec.msgpack.decode(frames[2], type=MapBatch).events
    assert said == [
        ClearedMap(),
        StoredMap([7], 6, list(range(7, 71)), 64, None, "GPU"),
        RemovedMap([7], "GPU"),
    ]


histories = st.lists(
    st.tuples(st.booleans(), st.integers(0, 9)).map(
        lambda what: stored(what[1], tokens=2) if what[0] else removed(what[1])
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=15)
@given(histories)
def test_a_follower_that_joins_late_knows_all_in_the_end(history: list[KvEvent]) -> None:
    """LMCache 1690, Mooncake 4153: whoever misses a part believes what is not there."""
    events = VllmKvEvents(ANYWHERE, ANYWHERE)
    with zmq.Context() as context:
        try:
            for event in history:
                events.heard(event)
            follower = followed(context, events)
            events.heard(stored(99, tokens=1))
            last = block_hash(key(99))
            follower.follow_until(lambda: last in follower.blocks)
            assert follower.blocks == truth([*history, stored(99, tokens=1)])
        finally:
            events.close()
            context.destroy(0)


def test_a_follower_that_does_not_read_holds_nobody_up_and_catches_up_later(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents]
) -> None:
    events = publisher(limits=Limits(follower_batches=2))
    follower = followed(context, events, hwm=1)
    history: list[KvEvent] = []
    for number in range(4000):
        history += [stored(number, tokens=400)]
        events.heard(history[-1])
        if number % 50 == 0:
            wait_for_batch(events)
    wait_for_batch(events)
    assert events.dropped == 0
    follower.follow_until(lambda: block_hash(key(3999)) in follower.blocks or nudge(events))
    assert follower.missed
    assert {h: b for h, b in follower.blocks.items() if h < 10**9} == truth(history)


def nudge(events: VllmKvEvents) -> bool:
    """One more event: a gap shows when the next batch comes."""
    events.heard(stored(10**9, tokens=1))
    return False


def wait_for_batch(events: VllmKvEvents) -> None:
    """Until the thread has published what it was told."""
    before = events.batches
    events.heard(stored(10**9 + 1, tokens=1))
    while events.batches == before:
        time.sleep(0.001)


def test_what_is_no_longer_kept_comes_as_all_that_there_is(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents]
) -> None:
    events = publisher(limits=Limits(kept_bytes=2000))
    history: list[KvEvent] = [stored(number) for number in range(50)]
    history += [removed(number) for number in range(0, 50, 2)]
    for event in history:
        events.heard(event)
        wait_for_batch(events)
    follower = Follower(context, events)
    ((number, batch),) = follower.replayed(0)
    assert number == events.batches - 1
    follower.take(number, batch)
    follower.blocks.pop(block_hash(key(10**9 + 1)))
    assert follower.blocks == truth(history)


def test_a_queue_that_overflows_is_counted_and_everything_is_said_anew(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents]
) -> None:
    going_on = threading.Event()
    going_on.set()
    events = publisher(limits=Limits(queued=10), clock=lambda: float(going_on.wait(60)))
    follower = followed(context, events)
    history: list[KvEvent] = [stored(number, tokens=1) for number in range(100)]
    going_on.clear()  # the thread stands still at its next batch
    for event in history:
        events.heard(event)
    going_on.set()
    assert events.dropped >= len(history) - 2 * 10 - 1
    follower.follow_until(lambda: block_hash(key(99)) in follower.blocks)
    assert {h: b for h, b in follower.blocks.items() if h < 10**9} == truth(history)


def test_large_news_come_in_batches_of_bounded_size(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents]
) -> None:
    events = publisher()
    for number in range(3 * BATCH_EVENTS):
        events.heard(stored(number, tokens=1))
    wait_for_batch(events)
    follower = Follower(context, events)
    sizes = [len(batch.events) for _, batch in follower.replayed(0)]
    assert sum(sizes) >= 3 * BATCH_EVENTS
    assert max(sizes) <= BATCH_EVENTS


@pytest.mark.parametrize(
    "frames", [(b"x",), (b"", b"short"), (b"no", b"12345678"), (b"", b"", b"")]
)
def test_questions_that_are_none_are_not_answered_and_harm_nobody(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents], frames: tuple[bytes, ...]
) -> None:
    events = publisher()
    events.heard(stored(1))
    wait_for_batch(events)
    follower = Follower(context, events)
    follower.send_raw(*frames)
    assert follower.replayed(0)[0][0] == 0
    assert follower.replayed(2**64 - 1) == []


def test_without_a_replay_socket_events_are_published_all_the_same(
    context: zmq.Context[Any], publisher: Callable[..., VllmKvEvents]
) -> None:
    events = publisher(replay=None)
    assert events.replay_endpoint == ""
    follower = followed(context, events)
    events.heard(stored(5))
    while block_hash(key(5)) not in follower.blocks:
        came = follower.next()
        assert came is not None
        follower.take(*came)


def test_without_pyzmq_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "zmq":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install antiphon\[events\]"):
        VllmKvEvents(ANYWHERE)


def test_a_port_that_is_taken_is_named(publisher: Callable[..., VllmKvEvents]) -> None:
    taken = publisher(replay=None).endpoint
    threads = threading.active_count()
    with pytest.raises(UsageError, match=f'kv.events = "{taken}": can\'t listen there'):
        VllmKvEvents(taken)
    with pytest.raises(UsageError, match=r"kv\.events_replay"):
        VllmKvEvents(ANYWHERE, taken)
    assert threading.active_count() == threads


def test_closing_leaves_nothing() -> None:
    threads = threading.active_count()
    events = VllmKvEvents(ANYWHERE, ANYWHERE)
    for number in range(100):
        events.heard(stored(number))
    events.close()
    assert threading.active_count() == threads
