"""Paths of unequal speed end together, one that fails rests, no queue grows: in virtual time."""

import heapq
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.transfer import Cut, Paths, Slice, SliceBook, slice_bytes
from antiphon.core.transfer.paths import LONGEST_REST_S, QUEUED_S
from antiphon.core.transfer.slice_book import SliceBook as Book

MIB = 1 << 20
PAGE = 64 << 10
STREAMS, OUTSTANDING = 4, 4
STALL_S = 1.0


@dataclass
class Wire:
    """One path: it carries one slice after another. `dead_from`: nothing comes any more."""

    rate: float
    dead_from: float = float("inf")
    free_at: float = 0.0
    most_in_flight: int = 0


@dataclass
class World:
    """A client's streams over wires, in virtual time; `stream` i is of path i // STREAMS."""

    wires: list[Wire]
    now: float = 0.0
    connects: list[float] = field(default_factory=list)
    ended_at: float | None = None

    def __post_init__(self) -> None:
        self.paths = Paths(len(self.wires), STREAMS)
        self.book: Book = SliceBook(self.paths)
        self.events: list[tuple[float, int, str, int, Slice | None]] = []
        self.connected = [False] * (len(self.wires) * STREAMS)
        self.asked: list[list[Slice]] = [[] for _ in self.connected]
        self.count = 0

    def at(self, time: float, what: str, stream: int, one: Slice | None = None) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, what, stream, one))

    def pull(self, pages: int, timeout_s: float) -> int:
        rate = self.paths.stream_bytes_per_s(self.now)
        size = slice_bytes(pages * PAGE, len(self.connected), rate)
        self.ended_at = None
        return self.book.begin(Cut.of(pages, [(0, PAGE)], size), self.now + timeout_s)

    def run(self, pull: int) -> None:
        """Until the pull is over."""
        while True:
            self.book.expire(self.now)
            if self.book.over(pull):
                self.ended_at = self.now
                return
            connected = [self.turn(stream) for stream in range(len(self.connected))]
            if any(connected):
                continue
            times = [event[0] for event in self.events[:1]]
            times += [at for at in (self.book.next_deadline(),) if at is not None]
            for path in range(len(self.wires)):
                again = self.paths.try_again_at(path)
                times += [again] if again is not None and again > self.now else []
            self.now = max(self.now, min(times))
            while self.events and self.events[0][0] <= self.now:
                self.happen(*heapq.heappop(self.events)[2:])

    def turn(self, stream: int) -> bool:
        """Whether it connected."""
        path = stream // STREAMS
        wire = self.wires[path]
        if not self.connected[stream]:
            if self.book.left_bytes and self.paths.may_connect(path, self.now):
                if self.now >= wire.dead_from:
                    self.connects.append(self.now)
                    self.paths.failed(path, "no way", self.now)
                else:
                    self.connected[stream] = True
                    self.paths.connected(path, 0.001)
            return self.connected[stream]
        while len(self.asked[stream]) < OUTSTANDING and (one := self.book.take(path, self.now)):
            self.asked[stream].append(one)
            wire.free_at = max(wire.free_at, self.now) + one.bytes / wire.rate
            view = self.paths.views(self.now)[path]
            wire.most_in_flight = max(wire.most_in_flight, view.in_flight_bytes)
            if wire.free_at < wire.dead_from:
                self.at(wire.free_at, "came", stream, one)
            else:
                self.at(max(self.now, wire.dead_from) + STALL_S, "stalled", stream, one)
        return False

    def happen(self, what: str, stream: int, one: Slice | None) -> None:
        path = stream // STREAMS
        assert one is not None
        if one not in self.asked[stream]:
            return
        if what == "came":
            self.asked[stream].remove(one)
            if self.book.came(one, path, self.now).group:
                self.book.proven(one.pull)
            return
        for lost in self.asked[stream]:
            self.book.gave_back(lost, path, blamed=lost is one)
        self.asked[stream].clear()
        self.connected[stream] = False
        self.paths.failed(path, "stalled", self.now)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(20, 2000), min_size=1, max_size=4), st.integers(500, 2000))
def test_paths_of_unequal_speed_end_together(rates: list[int], pages: int) -> None:
    """Once speeds are known, a pull takes what all paths together need, and two slices more."""
    world = World([Wire(rate * 1e6) for rate in rates])
    world.run(world.pull(pages, 1e6))
    began, size = world.now, pages * PAGE
    second = world.pull(pages, 1e6)
    world.run(second)
    assert not world.book.missing_groups(second)
    assert world.ended_at is not None
    took = world.ended_at - began
    ideal = size / sum(rates) / 1e6
    one_slice = 4 * MIB / max(rates) / 1e6
    assert took <= 1.1 * ideal + 2 * one_slice + QUEUED_S


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(20, 2000), min_size=1, max_size=3), st.integers(100, 2000))
def test_no_queue_grows(rates: list[int], pages: int) -> None:
    """What is under way is a slice a stream, or what the path carries in `QUEUED_S` and a trip."""
    world = World([Wire(rate * 1e6) for rate in rates])
    for _ in range(2):
        world.run(world.pull(pages, 1e6))
    for wire in world.wires:
        in_time = wire.rate * (QUEUED_S + 0.001)
        assert wire.most_in_flight <= max(STREAMS * 4 * MIB, 1.05 * in_time)


@settings(max_examples=40, deadline=None)
@given(st.integers(50, 500), st.floats(0.0, 0.5), st.integers(500, 1500))
def test_a_path_of_two_that_dies_costs_its_stall_and_no_page(
    rate: int, dies: float, pages: int
) -> None:
    world = World([Wire(rate * 1e6), Wire(rate * 1e6, dead_from=dies)])
    pull = world.pull(pages, 1e6)
    world.run(pull)
    assert not world.book.missing_groups(pull)
    assert world.ended_at is not None
    assert world.ended_at <= pages * PAGE / rate / 1e6 + 2 * STALL_S + 0.5


def test_a_dead_path_is_tried_ever_more_rarely() -> None:
    world = World([Wire(20e6), Wire(20e6, dead_from=0.0)])
    world.run(world.pull(20_000, 1e6))
    waits = [later - before for before, later in pairwise(world.connects)]
    probes = [wait for wait in waits if wait > 0]
    assert len(probes) > 5
    assert all(later >= 0.99 * before for before, later in pairwise(probes))
    assert max(probes) <= 1.1 * LONGEST_REST_S


def test_without_any_path_a_pull_ends_when_nothing_can_come_any_more() -> None:
    world = World([Wire(1e6, dead_from=0.0)])
    pull = world.pull(10, 20.0)
    world.run(pull)
    assert len(world.book.missing_groups(pull)) > 0
    assert world.ended_at is not None
    assert world.ended_at <= 20.0


def test_whom_the_peer_refuses_is_told_at_once() -> None:
    paths = Paths(2, 1)
    book = SliceBook(paths)
    pull = book.begin(Cut.of(1, [(0, PAGE)], PAGE), deadline=100.0)
    paths.failed(0, "the server does not take the key", 1.0, refused=True)
    book.expire(1.0)
    assert book.wanted(pull)
    paths.failed(1, "the server does not take the key", 1.0, refused=True)
    book.expire(1.0)
    assert book.over(pull)
    assert paths.problem == "the server does not take the key"


@pytest.mark.parametrize("layers", [1, 3])
def test_the_first_part_of_all_pages_comes_first(layers: int) -> None:
    paths = Paths(1, 1)
    book = SliceBook(paths)
    paths.connected(0, 0.0)
    parts = [(256 * part, 256 * (part + 1)) for part in range(layers)]
    book.begin(Cut.of(10, parts, 1024), deadline=9.0)
    taken: list[Slice] = []
    while (one := book.take(0, 0.0)) is not None:
        taken.append(one)
        if book.came(one, 0, 0.0).group:
            book.proven(one.pull)
    assert [one.part for one in taken] == sorted(one.part for one in taken)
    assert len(taken) == 3 * layers
