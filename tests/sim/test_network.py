"""Streams keep their promise whatever happens to processes and links; hostile ones break it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.faults import Boundary, Delay, Drop, Duplicate, Reorder
from antiphon.sim import Hostility, LinkTimes, Network, VirtualLoop, VirtualProcess
from antiphon.sim.stream import End

TALK = Boundary.TOKEN


@dataclass
class Peer:
    """Says numbers on its newest stream, and writes down what it hears on each."""

    process: VirtualProcess
    end: End | None = None
    said: dict[End, list[int]] = field(default_factory=dict)
    heard: dict[End, list[int]] = field(default_factory=dict)
    closed: dict[End, int] = field(default_factory=dict)
    other: dict[End, End] = field(default_factory=dict)

    def take(self, end: End) -> None:
        self.end = end
        self.said[end], self.heard[end], self.closed[end] = [], [], 0
        end.heard = self.heard[end].append
        end.closed = lambda: self.note_closed(end)

    def note_closed(self, end: End) -> None:
        self.closed[end] += 1

    def say(self, number: int) -> None:
        if self.end is not None and self.end.open:
            self.said[self.end].append(number)
            self.end.send(number, TALK)


class Pair:
    """Two processes, the first calls the second."""

    def __init__(self, seed: int = 0, hostility: Hostility | None = None) -> None:
        self.loop = VirtualLoop()
        self.network = Network(self.loop, seed=seed, hostility=hostility)
        self.peers = [Peer(VirtualProcess(name, self.loop)) for name in "ab"]
        self.failed = 0
        for peer in self.peers:
            peer.process.start()
        self.listen()
        self.dial()

    def listen(self) -> None:
        self.network.listen(self.peers[1].process, self.peers[1].take)

    def dial(self) -> None:
        caller = self.peers[0]
        self.network.dial(caller.process, "b", caller.take, self.note_failed)

    def note_failed(self) -> None:
        self.failed += 1

    def ends(self) -> list[tuple[Peer, End]]:
        return [(peer, end) for peer in self.peers for end in peer.said]

    def check_ledger(self) -> None:
        traffic = self.network.traffic
        gone = traffic.delivered + traffic.dropped + traffic.lost
        assert traffic.sent + traffic.repeated == gone


happenings = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from(["say"] * 6 + ["cut", "part", "stop", "crash", "dial", "close", "restart"]),
        st.integers(0, 1),
    ),
    max_size=40,
)


def play(pair: Pair, script: list[tuple[int, str, int]]) -> None:
    for number, (at, what, who) in enumerate(script):
        peer = pair.peers[who]

        def act(what: str = what, peer: Peer = peer, number: int = number) -> None:
            process = peer.process
            match what:
                case "say" if process.alive and not process.stopped:
                    peer.say(number)
                case "cut":
                    pair.network.cut("a", "b")
                case "part":
                    pair.network.part("a", "b")
                    pair.loop.call_at(pair.loop.now + 0.01, lambda: pair.network.join("a", "b"))
                case "stop":
                    process.stop()
                    pair.loop.call_at(pair.loop.now + 0.007, process.go_on)
                case "crash":
                    process.crash()
                case "restart" if not process.alive:
                    process.start()
                    if process.name == "b":
                        pair.listen()
                case "dial" if pair.peers[0].process.alive:
                    pair.dial()
                case "close" if peer.end is not None and process.alive:
                    peer.end.close()
                case _:
                    pass

        pair.loop.call_at(at * 0.001, act)
    pair.loop.run()


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1000), happenings)
def test_a_stream_is_a_prefix_of_what_was_said(
    seed: int, script: list[tuple[int, str, int]]
) -> None:
    pair = Pair(seed)
    play(pair, script)
    pair.check_ledger()
    said = [tuple(numbers) for peer in pair.peers for numbers in peer.said.values()]
    for peer, end in pair.ends():
        heard = tuple(peer.heard[end])
        assert any(numbers[: len(heard)] == heard for numbers in said), "lossless and in order"
        assert peer.closed[end] <= 1
    if {"cut", "crash", "close"}.isdisjoint(what for _, what, _ in script):
        assert pair.network.traffic.lost == 0
        assert sorted(n for numbers in said for n in numbers) == sorted(
            n for peer in pair.peers for heard in peer.heard.values() for n in heard
        )
    for peer in pair.peers:
        peer.process.crash()
    pair.loop.run()
    assert pair.network.open_streams() == 0
    for peer, end in pair.ends():
        assert not end.open
        assert peer.process.lives >= 1


def test_the_last_words_of_the_dead_arrive_and_then_the_end() -> None:
    pair = Pair()
    a, b = pair.peers
    order: list[str] = []

    def last_words() -> None:
        assert b.end is not None
        b.end.heard = lambda number: order.append(f"heard {number}")
        b.end.closed = lambda: order.append("closed")
        a.say(1)
        a.say(2)
        a.process.crash()

    pair.loop.call_at(0.01, last_words)
    pair.loop.run()
    assert order == ["heard 1", "heard 2", "closed"]


def test_a_stopped_process_hears_later_and_in_order() -> None:
    pair = Pair()
    a, b = pair.peers
    pair.loop.call_at(0.01, b.process.stop)
    for number in range(5):
        pair.loop.call_at(0.02 + number * 0.001, lambda number=number: a.say(number))
    seen: list[int] = []
    pair.loop.call_at(1.0, lambda: seen.append(sum(map(len, b.heard.values()))))
    pair.loop.call_at(2.0, b.process.go_on)
    pair.loop.run()
    assert seen == [0]
    assert list(b.heard.values()) == [[0, 1, 2, 3, 4]]
    assert b.process.held_back == 5


def test_a_partition_holds_back_and_a_cut_loses() -> None:
    pair = Pair()
    a, b = pair.peers
    pair.loop.call_at(0.01, lambda: pair.network.part("a", "b"))
    pair.loop.call_at(0.02, lambda: a.say(1))
    pair.loop.call_at(0.5, lambda: pair.network.join("b", "a"))
    pair.loop.call_at(0.6, lambda: a.say(2))
    pair.loop.call_at(0.6, lambda: pair.network.cut("a", "b"))
    pair.loop.run()
    assert list(b.heard.values()) == [[1]]
    assert (pair.network.traffic.held, pair.network.traffic.lost) == (1, 1)
    assert [list(peer.closed.values()) for peer in pair.peers] == [[1], [1]]


def test_nobody_answers_for_the_dead_nor_across_a_partition() -> None:
    pair = Pair()
    pair.loop.call_at(0.1, pair.peers[1].process.crash)
    pair.loop.call_at(0.2, pair.dial)
    pair.loop.run()
    assert pair.failed == 1
    pair.peers[1].process.start()
    pair.listen()
    pair.network.part("a", "b")
    pair.dial()
    pair.loop.run()
    assert pair.failed == 2


def test_a_new_life_hears_nothing_of_the_old_ones_streams() -> None:
    pair = Pair()
    a, b = pair.peers
    pair.loop.call_at(0.01, lambda: a.say(1))
    pair.loop.call_at(0.01, b.process.crash)
    pair.loop.call_at(0.01, b.process.start)
    pair.loop.call_at(0.02, pair.listen)
    pair.loop.run()
    assert list(b.heard.values()) == [[]]
    assert pair.network.traffic.lost == 1
    assert list(a.closed.values()) == [1]
    assert (b.process.lives, b.process.incarnation) == (2, "b#2")


@pytest.mark.parametrize(
    ("fate", "heard"),
    [
        (None, [1, 2]),
        (Delay(0.1), [1, 2]),
        (Drop(), [2]),
        (Duplicate(0.1), [1, 2, 1]),
        (Reorder(0.1), [2, 1]),
    ],
)
def test_what_may_become_of_one_message(
    fate: Delay | Drop | Duplicate | Reorder | None, heard: list[int]
) -> None:
    pair = Pair()
    a, b = pair.peers
    fates = [(fate,) if fate is not None else (), ()]
    pair.network.fated = lambda _: fates.pop(0)
    pair.loop.call_at(0.01, lambda: a.say(1))
    pair.loop.call_at(0.02, lambda: a.say(2))
    pair.loop.run()
    assert list(b.heard.values()) == [heard]
    pair.check_ledger()


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 1000), happenings)
def test_hostile_links_lose_repeat_and_reorder_what_they_say_they_do(
    seed: int, script: list[tuple[int, str, int]]
) -> None:
    pair = Pair(seed, Hostility(drop=0.2, duplicate=0.2, reorder=0.2))
    play(pair, script)
    pair.check_ledger()


def test_hostile_links_are_hostile() -> None:
    pair = Pair(1, Hostility(drop=0.1, duplicate=0.1, reorder=0.1))
    for number in range(1000):
        pair.loop.call_at(0.01 + number * 0.001, lambda number=number: pair.peers[0].say(number))
    pair.loop.run()
    traffic = pair.network.traffic
    for count in (traffic.dropped, traffic.repeated, traffic.overtaken):
        assert 50 < count < 250
    (heard,) = pair.peers[1].heard.values()
    assert len(heard) == 1000 - traffic.dropped + traffic.repeated


def test_a_link_takes_the_time_it_says() -> None:
    loop = VirtualLoop()
    network = Network(loop, times=LinkTimes(least_s=0.25, most_s=0.5))
    a, b = (
        VirtualProcess(name, loop, clock_offset_s=offset) for name, offset in (("a", 7), ("b", -3))
    )
    a.start()
    b.start()
    stamps: list[float] = []

    def accept(end: End) -> None:
        end.heard = lambda sent: stamps.append((b.now + 3) - (sent - 7))

    network.listen(b, accept)
    network.dial(a, "b", lambda end: end.send(a.now, TALK), lambda: None)
    loop.run()
    assert len(stamps) == 1
    assert 0.25 <= stamps[0] < 0.5
