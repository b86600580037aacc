"""Followers of our blocks: they speak ZeroMQ and decode what vLLM's format description says."""

import builtins
import errno
import gc
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm_follower import (
    Cleared,
    ClearedMap,
    Follower,
    MapBatch,
    Removed,
    RemovedMap,
    Stored,
    StoredMap,
    followed,
    key,
    removed,
    stored,
    truth,
)

from antiphon.adapters.vllm_kv_events import (
    BATCH_EVENTS,
    END,
    Limits,
    VllmKvEvents,
    block_hash,
)
from antiphon.errors import UsageError
from antiphon.types import KvEvent

ANYWHERE = "tcp://127.0.0.1:*"


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


def test_a_socket_that_can_not_be_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(context: "zmq.Context[Any]", kind: int) -> None:
        raise zmq.ZMQError(errno.EMFILE)

    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"^kv\.events = .*open"):
        patch.setattr(zmq.Context, "socket", none_left)
        VllmKvEvents(ANYWHERE)


FEW_FILES = """
import os, resource, sys
from antiphon.adapters.vllm_kv_events import VllmKvEvents
from antiphon.errors import UsageError

VllmKvEvents("tcp://127.0.0.1:*", "tcp://127.0.0.1:*").close()
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
used = len(os.listdir("/proc/self/fd")) - 1
for spare in range(24):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, most))
    try:
        VllmKvEvents("tcp://127.0.0.1:*", "tcp://127.0.0.1:*").close()
    except UsageError as error:
        print(spare, error)
"""


def test_a_system_without_descriptors_ends_with_an_error_and_not_within_zeromq() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    refused = done.stdout.splitlines()
    assert 8 <= len(refused) < 24
    assert all("kv.events: " in line and "ulimit -n" in line for line in refused)


def test_closing_leaves_nothing() -> None:
    threads = threading.active_count()
    events = VllmKvEvents(ANYWHERE, ANYWHERE)
    for number in range(100):
        events.heard(stored(number))
    events.close()
    assert threading.active_count() == threads


def test_a_system_without_threads_leaves_nobody_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"tcp://127.0.0.1:{probe.getsockname()[1]}"

    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"^kv\.events: .*ulimit"):
        patch.setattr(threading.Thread, "start", none_left)
        VllmKvEvents(place)
    VllmKvEvents(place).close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
